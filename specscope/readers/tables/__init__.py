"""Hand-made tables: one grammar for layouts, headers, names and cells."""
