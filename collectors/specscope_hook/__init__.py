"""The hook inside the serving process: standard library only."""
