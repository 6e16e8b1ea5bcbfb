"""Profiler traces and their summaries: the time of a round by part."""
