"""The cost of a round: arithmetic, rooflines and fits."""
