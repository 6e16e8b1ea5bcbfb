"""Blocks: stretches on one replica in which one arm served every request.

Blocks are the unit of randomisation and pairs of blocks the unit of inference, because requests of
one batch share its time. The records mirror the store's block rollups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Literal

BASELINE = "k0"
IN_FORCE = "current"  # the arm that follows the table in force

CONTEXT_BUCKETS = ("0-1k", "1-4k", "4-16k", "16-64k", "64k+")
"""The values of `context_bucket` with a known context, shortest first; k is 1024 tokens."""

Design = Literal["cohort", "switchback", "closed_loop"]
"""How traffic reaches the blocks: the same fixed requests in each of a pair; open arrivals that
the arm must not influence; or clients that send the next request when the last one ends, so
that a faster arm rightly serves more."""


class LeftOut(StrEnum):
    """The reason for dropping a pair. `words.LEFT_OUT` has the sentences."""

    GUARDRAIL = "guardrail"
    DRAFTED_BEYOND = "drafted_beyond"
    UNEQUAL_REQUESTS = "unequal_requests"
    AMBIGUOUS = "ambiguous"
    UNDECLARED = "undeclared"
    ONE_STREAM = "one_stream"
    TWO_CONFIGURATIONS = "two_configurations"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBlock:
    """The key of a block: one arm of a pair, on one start of one replica."""

    epoch: str
    policy: int
    replica: str
    boot: str
    pair: int
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTime(OfBlock):
    """Times and tokens of one arm's block, over all its rounds. Unknown times are None.

    void: reason not to compare its pair; None if there is none. merged: number of blocks of equal
    replicas at one time that it sums. Neither is a stored column.
    """

    requests: int
    rounds: int
    request_rounds: int
    classes: tuple[str, ...]
    k: int
    wall_us: float
    draft_us: float | None = None
    verify_us: float | None = None
    sample_us: float | None = None
    idle_us: float | None = None
    catchup_us: float | None = None
    prefill_us: float | None = None
    n_q: int = 0
    n_kv: int = 0
    proposed: int = 0
    accepted: int = 0
    emitted: int = 0
    prefill_tokens: int = 0
    padded_tokens: int = 0
    first_at: int = 0
    last_at: int = 0
    gap_bins: tuple[int, ...] = ()
    gap_counts: tuple[int, ...] = ()
    tpot_bins: tuple[int, ...] = ()
    tpot_counts: tuple[int, ...] = ()
    full_tokens: int | None = None
    invalid: int | None = None
    preempted: int | None = None
    model_bytes: int | None = None
    dram_busy_us: float | None = None
    dram_seen_us: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    ended_requests: int | None = None
    output_tokens: int | None = None
    ttft_us: float | None = None
    first_tokens: int | None = None
    waiting: int | None = None
    waiting_first: int | None = None
    waiting_last: int | None = None
    admitted_kinds: tuple[str, ...] = ()
    admitted_counts: tuple[int, ...] = ()
    void: LeftOut | None = None
    merged: int = 1

    @property
    def busy_us(self) -> float | None:
        """Time in which the device worked; None if the idle time is unknown."""
        return None if self.idle_us is None else max(0.0, self.wall_us - self.idle_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPart(OfBlock):
    """Counts of one kind of request in a block. It has no times, because requests share them."""

    class_: str
    context_bucket: str
    output_bucket: str
    k: int
    request_rounds: int
    proposed: int
    accepted: int
    emitted: int
    tested: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    censored: int = 0
    requests: int = 0
    kinds: tuple[str, ...] = ()
    kind_rounds: tuple[int, ...] = ()
    kind_emitted: tuple[int, ...] = ()
    kind_tested: tuple[int, ...] = ()
    kind_kept: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockClass(OfBlock):
    """Time per output token of one class in a block.

    tpot_bins, tpot_counts: log-histogram over requests of the time per output token.
    """

    class_: str
    requests: int
    tpot_bins: tuple[int, ...] = ()
    tpot_counts: tuple[int, ...] = ()


def arm_k(arm: str) -> int | None:
    """Draft length of a fixed arm: `k4` is 4; None for arms that follow a table."""
    return int(arm[1:]) if arm[:1] == "k" and arm[1:].isdigit() else None


def merge_blocks(rows: Sequence[BlockTime]) -> BlockTime:
    """One block from its rows: sums of counts and times, joint classes, widest span.

    A time that is unknown in one row is unknown in the block.
    """
    first = rows[0]
    if len(rows) == 1:
        return first
    changes: dict[str, Any] = {}
    for name in _SUMMED:
        values = [getattr(row, name) for row in rows]
        changes[name] = None if any(v is None for v in values) else sum(values)
    for names, counts in _COUNTED:
        changes[names], changes[counts] = _merge_counts(rows, names, counts)
    changes["classes"] = tuple(sorted({name for row in rows for name in row.classes}))
    changes["k"] = max(row.k for row in rows)
    changes["void"] = next((row.void for row in rows if row.void), None)
    changes["first_at"] = min(row.first_at for row in rows)
    changes["last_at"] = max(row.last_at for row in rows)
    return replace(first, **changes)


_SUMMED = tuple(
    field.name
    for field in fields(BlockTime)
    if field.name.endswith(("_us", "_tokens"))
    or field.name in {"requests", "rounds", "request_rounds", "n_q", "n_kv"}
    or field.name in {"proposed", "accepted", "emitted", "invalid", "preempted"}
    or field.name in {"model_bytes", "ended_requests", "waiting", "waiting_first", "waiting_last"}
)
# What is counted, and how often.
_COUNTED = (
    ("gap_bins", "gap_counts"),
    ("tpot_bins", "tpot_counts"),
    ("admitted_kinds", "admitted_counts"),
)


def _merge_counts(
    rows: Sequence[BlockTime], names: str, counts: str
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    merged: dict[Any, int] = defaultdict(int)
    for row in rows:
        for name, count in zip(getattr(row, names), getattr(row, counts), strict=True):
            merged[name] += count
    ordered = sorted(merged)
    return tuple(ordered), tuple(merged[name] for name in ordered)
