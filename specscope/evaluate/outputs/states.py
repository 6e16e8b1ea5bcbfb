"""States of a check of outputs. Standard library only, because `words` imports them."""

from __future__ import annotations

EQUAL, AS_TWINS, UNDECIDED, DIFFERS = "equal", "as_twins", "undecided", "differs"
