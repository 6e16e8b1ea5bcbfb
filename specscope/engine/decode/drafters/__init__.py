"""Drafters: each proposes tokens that the target verifies."""
