"""Live sources: engines without a hook, which the sidecar follows from the outside.

Each file is one source. It turns an engine's own output into the rows that a hook would give.
Missing values stay unknown, and unreadable output counts as lost.
"""
