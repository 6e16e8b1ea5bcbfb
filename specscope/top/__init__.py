"""A live view of replicas' rounds in a terminal, from their rings alone."""
