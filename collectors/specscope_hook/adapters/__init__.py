"""One serving engine per file."""
