"""The experiment: blocks, pairs and segments, and the contrasts between arms."""
