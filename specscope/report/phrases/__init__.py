"""The words of a report, by topic: one function per kind of row, for page, text and terminal."""
