"""Readers of existing files: one format per module, recognised by content, not by name."""
