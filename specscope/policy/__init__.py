"""Gate policies: the table of draft lengths, the stored row, and the service that applies them."""
