"""The report: collect from the store, decide, and write it for a person and for a machine."""
