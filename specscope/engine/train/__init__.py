"""Training of the bundled pair: corpus, training loop, files."""
