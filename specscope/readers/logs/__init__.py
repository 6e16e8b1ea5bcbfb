"""Logs of engines, line by line."""
