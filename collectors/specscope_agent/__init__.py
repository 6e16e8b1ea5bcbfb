"""The sidecar: drains rings, samples devices, ships batches."""
