"""The sentences of a report, by topic: one function per kind of row, for page, Markdown and
terminal."""
