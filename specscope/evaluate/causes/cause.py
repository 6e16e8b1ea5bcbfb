"""What a cause is: a name, the part of the round that it is behind, and a look at the facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specscope.evaluate.causes.facts import Facts


@dataclass(frozen=True, slots=True)
class Seen:
    """The cause is there. saved: time per output token without it. [ms] evidence: in words."""

    saved: float
    evidence: str


@dataclass(frozen=True, slots=True)
class Missing:
    """It cannot be told. needs: columns (`table.column`) or blocks that would tell."""

    needs: tuple[str, ...]


Look = Callable[[Facts], Seen | Missing | None]
"""None: it was looked for and is not there."""


@dataclass(frozen=True, slots=True)
class Cause:
    """part: its own code where it is a whole part of the round; that of the part that it is
    behind; None where it makes the input unbelievable."""

    code: str
    part: str | None
    look: Look

    @property
    def whole(self) -> bool:
        """Whether it is a whole part of the round rather than something behind one."""
        return self.part == self.code
