"""Rollups recomputed from true rounds, in plain Python that shares nothing with the SQL."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from store.traffic import Sequence, Traffic, TrueRound

MINUTE_NS = 60 * 10**9


def positions(sequences: Iterable[Sequence], k: int) -> tuple[list[int], list[int], int]:
    """Tested and kept by position, and rounds that the end of the text cut short of a verdict."""
    tested, kept, censored = [0] * k, [0] * k, 0
    for s in sequences:
        cut = s.emitted < s.accepted + 1
        seen_kept = min(s.accepted, s.emitted) if cut else s.accepted
        seen_tested = seen_kept if cut else min(k, s.accepted + 1)
        for position in range(1, k + 1):
            tested[position - 1] += position <= seen_tested
            kept[position - 1] += position <= seen_kept
        censored += cut and seen_kept < k
    return tested, kept, censored


def grouped(
    traffic: Traffic, key: Callable[[TrueRound, Sequence], Any]
) -> dict[Any, list[Sequence]]:
    """Sequences by anything."""
    groups: dict[Any, list[Sequence]] = defaultdict(list)
    for round_ in traffic.rounds:
        for sequence in round_.sequences:
            groups[key(round_, sequence)].append(sequence)
    return groups


def sums(sequences: list[Sequence]) -> dict[str, int]:
    """What every grain adds up."""
    return {
        "request_rounds": len(sequences),
        "proposed": sum(s.k for s in sequences),
        "accepted": sum(s.accepted for s in sequences),
        "emitted": sum(s.emitted for s in sequences),
    }


def lengths(sequences: list[Sequence], k: int) -> list[int]:
    """Rounds by accepted tokens, from none to k."""
    counts = Counter(s.accepted for s in sequences)
    return [counts[i] for i in range(k + 1)]


def blocks(traffic: Traffic) -> dict[tuple[Any, Any], list[TrueRound]]:
    """Rounds by pair and arm."""
    groups: dict[tuple[Any, Any], list[TrueRound]] = defaultdict(list)
    for round_ in traffic.rounds:
        groups[round_.pair, round_.arm].append(round_)
    return groups
