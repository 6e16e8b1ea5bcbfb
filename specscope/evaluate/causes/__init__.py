"""Why an arm loses against target-only decoding."""
