"""States of a check of outputs. Standard library only, so that words of verdicts can name them."""

from __future__ import annotations

EQUAL, AS_TWINS, UNDECIDED, DIFFERS = "equal", "as_twins", "undecided", "differs"
