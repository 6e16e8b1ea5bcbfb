"""What a round costs: arithmetic, rooflines and fits."""
