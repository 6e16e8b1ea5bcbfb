"""From contrasts to verdicts."""
