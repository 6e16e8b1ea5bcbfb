"""Ratios of the two sides by class, from sums over requests that both sides completed.

There are two intervals. One is a jackknife over 32 groups of requests, by a hash of the session or
of the request. The other is over the parts, each of which ran on both sides. The first covers
differences between requests, the second the drift of the machine. The wider one is reported.
Source: evaluator reference of delete-a-group jackknife; Deng, Knoblich & Lu 2018 for the parts.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specscope.evaluate.statistics import quantiles, ratio
from specscope.evaluate.statistics.quantiles import QuantileEstimate
from specscope.replay.client import Outcome
from specscope.replay.trace import Asked

Floats = NDArray[np.float64]
GROUPS = 32
FEWEST_PARTS = 3  # below, their interval says nothing


@dataclass(frozen=True, slots=True)
class Both:
    """One request in one part, with the answers of both sides."""

    asked: Asked
    a: Outcome
    b: Outcome

    @property
    def part(self) -> int:
        """The part in which it ran."""
        return self.a.part


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain of b over a in one metric (> 1 is better), with the value of each side.

    low, high: interval at `level`; None if unknown. clusters: sessions, or requests without one.
    by_parts: whether the interval over parts is the reported one.
    """

    metric: str
    unit: str
    a: float
    b: float
    value: float
    low: float | None
    high: float | None
    level: float
    clusters: int
    by_parts: bool = False


def pair_up(requests: Sequence[Asked], outcomes: Sequence[Outcome]) -> list[Both]:
    """Requests that both sides completed, by request and part."""
    by_number = {asked.number: asked for asked in requests}
    found: dict[tuple[int, int], dict[str, Outcome]] = defaultdict(dict)
    for outcome in outcomes:
        if not outcome.error:
            found[outcome.part, outcome.number][outcome.side] = outcome
    return [
        Both(by_number[number], sides["a"], sides["b"])
        for (_, number), sides in sorted(found.items())
        if len(sides) == 2
    ]


def token_time(pairs: Sequence[Both], level: float) -> Gain | None:
    """Time per output token after the first: sum of times over sum of tokens. [ms]"""
    return _of_sums("time per output token", "ms", pairs, _decode, level)


def first_token(pairs: Sequence[Both], level: float) -> Gain | None:
    """Mean time to the first text. [ms]"""
    return _of_sums("time to first token", "ms", pairs, _ttft, level)


def chunk_gap(pairs: Sequence[Both], level: float) -> Gain | None:
    """95th percentile of the time between two pieces of text of an answer. [ms]"""
    whole = [both for both in pairs if both.a.gaps and both.b.gaps]
    if not whole:
        return None
    places = _groups(whole)
    by_group = _gap_ratio(whole, [places[both.asked.cluster] for both in whole], level)
    by_part = _gap_ratio(whole, [both.part for both in whole], level)
    found = max((by_group, by_part), key=_width)
    a, b = (
        quantiles.quantile(quantiles.merge([getattr(both, side).gaps for both in whole]), 0.95)
        for side in "ab"
    )
    return Gain(
        metric="95th percentile of chunk gaps",
        unit="ms",
        a=a,
        b=b,
        value=a / b,
        low=None if found.high is None else 1.0 / found.high,
        high=None if found.low is None else 1.0 / found.low,
        level=level,
        clusters=len(places),
        by_parts=found is by_part,
    )


def _gap_ratio(pairs: Sequence[Both], keys: Sequence[int], level: float) -> QuantileEstimate:
    """The quantile of b over that of a, by resampling whole groups."""
    groups: dict[int, list[Both]] = defaultdict(list)
    for key, both in zip(keys, pairs, strict=True):
        groups[key].append(both)
    ordered = [groups[key] for key in sorted(groups)]
    ones = [quantiles.merge([both.b.gaps for both in group]) for group in ordered]
    bases = [quantiles.merge([both.a.gaps for both in group]) for group in ordered]
    return quantiles.paired_quantile_ratio(ones, bases, 0.95, level)


def _width(found: QuantileEstimate) -> float:
    return 0.0 if found.low is None or found.high is None else found.high / found.low


def throughput(
    pairs: Sequence[Both], spans: Mapping[tuple[int, str], float], level: float
) -> Gain | None:
    """Output tokens per second of all requests, from a part's begin to its last answer.

    spans: seconds of each part on each side. The interval comes from the parts alone.
    """
    parts: dict[int, list[float]] = {}
    for both in pairs:
        if both.a.output_tokens and both.b.output_tokens:
            sums = parts.setdefault(both.part, [0.0, 0.0])
            sums[0] += both.a.output_tokens
            sums[1] += both.b.output_tokens
    rows = [(*sums, spans[part, "a"], spans[part, "b"]) for part, sums in sorted(parts.items())]
    if not rows:
        return None
    tokens_a, tokens_b, time_a, time_b = np.array(rows, dtype=np.float64).T
    found = ratio.paired_log_ratio(tokens_b, time_b, tokens_a, time_a)
    limits = found.interval(level) if len(rows) >= FEWEST_PARTS else None
    low, high = (None, None) if limits is None else map(math.exp, limits)
    a, b = (float(x.sum() / y.sum()) for x, y in ((tokens_a, time_a), (tokens_b, time_b)))
    return Gain(
        "output tokens per second", "tokens/s", a, b, b / a, low, high, level, len(rows), True
    )


def _decode(outcome: Outcome) -> tuple[float, float] | None:
    tokens = (outcome.output_tokens or 0) - 1
    known = tokens > 0 and math.isfinite(outcome.decode_ms) and outcome.decode_ms > 0
    return (outcome.decode_ms, float(tokens)) if known else None


def _ttft(outcome: Outcome) -> tuple[float, float] | None:
    return (outcome.ttft_ms, 1.0) if math.isfinite(outcome.ttft_ms) else None


_Reading = Callable[[Outcome], tuple[float, float] | None]


def _of_sums(
    metric: str, unit: str, pairs: Sequence[Both], read: _Reading, level: float
) -> Gain | None:
    rows = []
    for both in pairs:
        a, b = read(both.a), read(both.b)
        if a is not None and b is not None:
            rows.append((both, (*a, *b)))
    if not rows:
        return None
    sums = np.array([values for _, values in rows])
    places = _groups([both for both, _ in rows])
    by_group = _added([places[both.asked.cluster] for both, _ in rows], sums)
    by_part = _added([both.part for both, _ in rows], sums)
    total = sums.sum(axis=0)
    delta = _log_gain(total)
    clusters = len({both.asked.cluster for both, _ in rows})
    halves = [_jackknife_half(by_group, level), _parts_half(by_part, level)]
    known = [half for half in halves if half is not None]
    half = max(known, default=None)
    return Gain(
        metric=metric,
        unit=unit,
        a=float(total[0] / total[1]),
        b=float(total[2] / total[3]),
        value=math.exp(delta),
        low=None if half is None or halves[0] is None else math.exp(delta - half),
        high=None if half is None or halves[0] is None else math.exp(delta + half),
        level=level,
        clusters=clusters,
        by_parts=half is not None and half == halves[1],
    )


def _groups(pairs: Sequence[Both]) -> dict[str, int]:
    """The group of each cluster: random by hash, with groups of equal size."""
    names = {both.asked.cluster for both in pairs}
    drawn = sorted(names, key=lambda name: hashlib.blake2b(name.encode()).digest())
    return {name: place % GROUPS for place, name in enumerate(drawn)}


def _added(keys: Sequence[int], rows: Floats) -> Floats:
    """Sum the rows of each key."""
    sums: dict[int, Floats] = {}
    for key, row in zip(keys, rows, strict=True):
        sums[key] = sums.get(key, np.zeros(rows.shape[1])) + row
    return np.array([sums[key] for key in sorted(sums)])


def _jackknife_half(groups: Floats, level: float) -> float | None:
    if len(groups) < 2:
        return None
    _, se = ratio.jackknife(list(groups), lambda kept: _log_gain(np.sum(kept, axis=0)))
    return ratio.t_quantile(level, len(groups) - 1) * se


def _parts_half(parts: Floats, level: float) -> float | None:
    if len(parts) < FEWEST_PARTS:
        return None
    time_a, tokens_a, time_b, tokens_b = parts.T
    found = ratio.paired_log_ratio(time_a, tokens_a, time_b, tokens_b)
    assert found.se is not None
    return ratio.t_quantile(level, len(parts) - 1) * found.se


def _log_gain(sums: Floats) -> float:
    return float(np.log(sums[0] / sums[1]) - np.log(sums[2] / sums[3]))
