"""Tables that people make: one grammar of drawings, headers, names and cells."""
