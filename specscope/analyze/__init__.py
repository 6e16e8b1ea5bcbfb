"""`specscope analyze`: a verdict from files that people already have."""
