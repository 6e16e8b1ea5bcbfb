"""Counters of the bundled engine: drafts, accepted tokens by position, the time of a round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from specscope.readers.records import LONGEST_DRAFT, Record, TimeParts, Window
from specscope.readers.scrapes.counters import Change

PREFIX = "specscope_engine_"
ENGINE = "specscope"
_PARTS = ("prefill", "catchup", "draft", "verify", "sample", "idle")


def windows(change: Change) -> Iterator[Record]:
    """One window, and the mean time of a round in ms.

    A draft is a sequence's round with at least one proposal: those that tested position 1. Without
    any, the window says nothing of speculation.
    """
    sums: dict[str, float] = {}
    tested: dict[int, int] = defaultdict(int)
    accepted: dict[int, int] = defaultdict(int)
    seconds: dict[str, float] = {}
    for (name, labels), value in change.delta.items():
        if not name.startswith(PREFIX):
            continue
        label, short = dict(labels), name.removeprefix(PREFIX)
        position = label.get("position", "")
        if position.isdigit() and len(position) < 5 and 0 < int(position) <= LONGEST_DRAFT:
            by_position = tested if short.startswith("tested") else accepted
            by_position[int(position)] += round(value)
        elif short == "round_seconds_total":
            seconds[label.get("part", "")] = value
        else:
            sums[short] = value
    rounds = round(sums.get("rounds_total", 0))
    if not rounds:
        return
    drafts = tested.get(1, 0)
    emitted = sums.get("emitted_tokens_total")
    wall = seconds.get("wall")
    k = max((at for at, count in tested.items() if count), default=None)
    yield Window(
        change.input,
        ENGINE,
        grain="counter",
        seconds=change.seconds,
        k=k,
        drafts=drafts or None,
        proposed=_whole(sums, "proposed_tokens_total") if drafts else None,
        accepted=_whole(sums, "accepted_tokens_total") if drafts else None,
        generated=emitted,
        counted_at=tuple(accepted[at] for at in range(1, k + 1)) if k else None,
        running=_gauge(change, "running"),
        waiting=_gauge(change, "waiting"),
        throughput_tok_s=emitted / change.seconds if emitted and change.seconds else None,
        round_ms=1000 * wall / rounds if wall else None,
    )
    if wall:
        each = {part: 1000 * seconds[part] / rounds for part in _PARTS if part in seconds}
        yield TimeParts(
            change.input,
            rounds=rounds,
            round_ms=1000 * wall / rounds,
            draft_ms=each.get("draft"),
            verify_ms=each.get("verify"),
            sample_ms=each.get("sample"),
            idle_ms=each.get("idle"),
            parts_ms={part: 1000 * seconds[part] for part in _PARTS if part in seconds},
        )


def _whole(sums: dict[str, float], name: str) -> int | None:
    value = sums.get(name)
    return round(value) if value is not None else None


def _gauge(change: Change, name: str) -> int | None:
    value = change.last.get((PREFIX + name, ()))
    return round(value) if value is not None else None
