"""Readers of files that people already have: one format per file, found by content, not by name."""
