"""Measurements of the engine: speed, bandwidth, acceptance."""
