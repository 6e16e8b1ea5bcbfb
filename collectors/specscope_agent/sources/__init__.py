"""Live sources: engines without a hook, followed by the sidecar from the outside.

One file a source. Each turns an engine's own output into the rows that a hook would have led to;
what the engine does not say stays unknown, and what cannot be read is counted as lost.
"""
