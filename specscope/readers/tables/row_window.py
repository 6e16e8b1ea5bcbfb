"""The window of a row with acceptance."""

from __future__ import annotations

import operator
from itertools import accumulate

from specscope.readers.records import Arm, Window
from specscope.readers.tables.round_parts import round_parts

AGREES = 0.02
"""A mean length and a list of rates are printed with two or three digits."""


def window_of(input: str, arm: Arm, positions: tuple[float, ...] | None) -> Window:
    """The window of a row. positions: acceptance by position, 0..1, where the row gives it."""
    metrics = arm.metrics
    drafts, length = metrics.get("drafts"), metrics.get("mean_length")
    if positions is not None and length is not None:
        positions = survival(positions, length)
    elif positions is not None and list(positions) == sorted(positions, reverse=True):
        length = 1 + sum(positions)
    parts = round_parts(arm)
    told = [str(arm.conditions[d]) for d in ("label", "engine", "version") if d in arm.conditions]
    told += [str(arm.settings["model"])] if "model" in arm.settings and not told else []
    loads = ("batch", "concurrency", "context", "tp")
    told += [f"{name} {arm.conditions[name]}" for name in loads if name in arm.conditions]
    own = "" if arm.arm.startswith("row ") and told else arm.arm
    return Window(
        input,
        "unknown",
        grain="run",
        label=", ".join(filter(None, [own, *told])),
        k=arm.k,
        drafts=round(drafts) if drafts is not None else None,
        proposed=_whole(metrics.get("proposed")),
        accepted=_count(metrics.get("accepted")),
        came_out=round(length * drafts)
        if length and drafts and "accepted" not in metrics
        else None,
        printed_rate=metrics.get("acceptance_rate"),
        printed_length=length,
        printed_positions=positions,
        throughput_tok_s=metrics.get("throughput_tok_s"),
        round_ms=parts.round_ms,
        draft_ms=parts.draft_ms,
        # The table's own length may leave out the first token or cut the last round.
        tolerance=max(0.05, 1.5 / drafts) if drafts else 0.05,
    )


def survival(rates: tuple[float, ...], length: float) -> tuple[float, ...] | None:
    """Acceptance by position over all drafts, from a list that may be over tested positions.

    The mean length says which: 1 + the sum of the first kind, 1 + the sum of products of the other.
    None when the list agrees with neither.
    """
    for kind in (rates, tuple(accumulate(rates, operator.mul))):
        if abs(1 + sum(kind) - length) <= AGREES * length:
            return kind
    return None


def _count(value: float | None) -> int | None:
    """A fraction is a mean of something and no count."""
    return int(value) if value is not None and value == int(value) else None


def _whole(value: float | None) -> int | None:
    return round(value) if value is not None else None
