"""Profiler traces and their summaries: where the time of a round goes."""
