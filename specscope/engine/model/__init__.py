"""The decoder model: configuration, layers, KV cache, and the layout of ragged batches."""
