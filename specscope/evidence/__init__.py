"""Evidence: rows of the store that verdicts rest on, read once for a period."""
