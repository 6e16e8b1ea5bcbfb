"""The demonstration: engine, sidecar and service as real processes, ending with verdicts."""
