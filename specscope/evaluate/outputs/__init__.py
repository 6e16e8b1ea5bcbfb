"""Whether speculation left the distribution of outputs alone."""
