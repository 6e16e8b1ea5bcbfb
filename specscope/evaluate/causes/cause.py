"""What a cause is: a name, the part of the round that it is behind, and a look at the facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from specscope.evaluate.causes.draws import Array
from specscope.evaluate.causes.facts import Facts

Numbers = Mapping[str, float | str]


class Need(StrEnum):
    """Blocks that would tell whether a cause is there. Columns are named `table.column` instead."""

    CONTEXTS_OF_CLASS = "blocks_of_other_contexts"
    CONTEXTS_APART = "blocks_of_contexts_apart"
    BATCH_DOUBLED = "blocks_at_twice_the_batch"
    THREE_LENGTHS = "blocks_of_three_lengths"


@dataclass(frozen=True, slots=True)
class Seen:
    """The cause was looked for.

    saved: [draws] time per output token that its repair surely saves, 0 if the cause is absent.
    [ms] at_most: [draws] what it may save if its reference is not known; None if it is. numbers:
    what the evidence as it came shows, by name; `cause_words` has the sentence. needs: what would
    tell the reference.
    """

    saved: Array
    numbers: Numbers = field(default_factory=dict)
    at_most: Array | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """It cannot be told. needs: columns (`table.column`) or a `Need`. at_most: as in `Seen`."""

    needs: tuple[str, ...]
    at_most: Array | None = None


Look = Callable[[Facts], Seen | Missing | None]
"""None: it was looked for and is not there."""


@dataclass(frozen=True, slots=True)
class Cause:
    """part: its own code if it is a whole part of the round; that of the part that it is
    behind; None if it makes the input unbelievable."""

    code: str
    part: str | None
    look: Look
