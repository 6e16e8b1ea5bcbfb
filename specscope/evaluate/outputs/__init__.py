"""Test whether speculation preserves the output distribution."""
