"""Statistics from clusters and pairs: estimates, intervals, sequences."""
