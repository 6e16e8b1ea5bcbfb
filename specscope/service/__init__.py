"""The ingest service: batches in over gRPC, rows into the store, SQL out over HTTP."""
