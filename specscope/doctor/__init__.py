"""Checks of this machine and of the pipeline, each with its remedy."""
