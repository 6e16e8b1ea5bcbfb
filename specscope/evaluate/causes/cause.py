"""A cause: its name, the part of the round that it belongs to, and a check of the facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from specscope.evaluate.causes.draws import Array
from specscope.evaluate.causes.facts import Facts

Numbers = Mapping[str, float | str]


class Need(StrEnum):
    """Missing blocks that would confirm or exclude a cause. Missing columns are `table.column`
    strings."""

    CONTEXTS_OF_CLASS = "blocks_of_other_contexts"
    CONTEXTS_APART = "blocks_of_contexts_apart"
    BATCH_DOUBLED = "blocks_at_twice_the_batch"
    THREE_LENGTHS = "blocks_of_three_lengths"


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of a check that had its data.

    saved: [draws] time per output token that the repair saves, 0 if the cause is absent. [ms]
    at_most: [draws] upper limit of the saving if the reference is unknown; None if it is known.
    numbers: observations in the original evidence, by name; `cause_words` has the sentence. needs:
    data that would give the reference.
    """

    saved: Array
    numbers: Numbers = field(default_factory=dict)
    at_most: Array | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """The data for the check is missing. needs: columns (`table.column`) or a `Need`. at_most: as
    in `Seen`."""

    needs: tuple[str, ...]
    at_most: Array | None = None


Look = Callable[[Facts], Seen | Missing | None]
"""None: it was looked for and is not there."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the table of causes.

    part: the code of the part of the round that the cause belongs to, which is its own code for a
    whole part. None if the cause means that the input is wrong."""

    code: str
    part: str | None
    look: Look
