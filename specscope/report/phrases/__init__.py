"""The words of a report, by topic: one function a kind of row, for page, text and terminal."""
