"""Figures of one replica's rounds over some seconds. Pure functions over ring records."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.statistics.acceptance import count_positions, survival
from specscope_hook.layout import OTHER
from specscope_hook.ring_records import RingRound

PARTS = ("draft", "verify", "sample", "idle")


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm of an experiment: tokens per round over request-rounds, and the mean time of a
    round."""

    rounds: int
    tokens_per_round: float
    round_ms: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over rounds; None if no round has the value.

    seconds: from the first round's start to the last one's end. batch: sequences per round. k:
    share of request-rounds by draft length. tokens_per_round: over request-rounds, also by class.
    survival: P(accepted >= j) for j from 1 up. shares: share of the rounds' time, by part; `other`
    is the remainder. arm, policy: those of the newest round; None outside an experiment and without
    a policy. by_arm: figures by arm, if more than one arm ran. waiting: waiting requests at the
    newest round.
    """

    rounds: int
    seconds: float
    rounds_per_s: float
    tokens_per_s: float
    batch: float
    waiting: int
    k: Mapping[int, float]
    tokens_per_round: float | None
    survival: tuple[float, ...]
    shares: Mapping[str, float | None]
    round_p95_ms: float
    by_class: Mapping[str, float]
    arm: str | None
    policy: int | None
    by_arm: Mapping[str, ArmFigures]


def figures(
    rounds: Sequence[RingRound], classes: Mapping[int, str], arms: Mapping[int, str]
) -> Figures | None:
    """Compute the figures of rounds in their order; None without rounds.

    classes, arms: names by the ring's ids
    """
    if not rounds:
        return None
    newest = rounds[-1]
    seconds = (newest.started_at - rounds[0].started_at) / 1e9 + newest.wall_us / 1e6
    ks = Counter(k for round_ in rounds for k in round_.k)
    request_rounds = ks.total()
    emitted = sum(sum(round_.emitted) for round_ in rounds)
    walls = sorted(round_.wall_us for round_ in rounds)
    return Figures(
        rounds=len(rounds),
        seconds=seconds,
        rounds_per_s=len(rounds) / seconds if seconds > 0 else 0.0,
        tokens_per_s=emitted / seconds if seconds > 0 else 0.0,
        batch=request_rounds / len(rounds),
        waiting=newest.waiting,
        k={k: count / request_rounds for k, count in sorted(ks.items())},
        tokens_per_round=emitted / request_rounds if request_rounds else None,
        survival=_survival(rounds, max(ks, default=0)),
        shares=_shares(rounds),
        round_p95_ms=walls[math.ceil(0.95 * len(walls)) - 1] / 1e3,
        by_class=_by_class(rounds, classes),
        arm=arms.get(newest.arm) if newest.pair else None,
        policy=newest.policy or None,
        by_arm=_by_arm(rounds, arms),
    )


def _survival(rounds: Iterable[RingRound], k_max: int) -> tuple[float, ...]:
    # Positions behind the end of a text came out for nobody, or were not tested.
    tried = [
        (k, min(accepted, emitted), emitted < accepted + 1 and emitted < k)
        for round_ in rounds
        for k, accepted, emitted in zip(round_.k, round_.accepted, round_.emitted, strict=True)
        if accepted <= k
    ]
    at_risk, kept = count_positions(tried, k_max)
    return survival([at_risk], [kept]).survival if k_max else ()


def _shares(rounds: Sequence[RingRound]) -> dict[str, float | None]:
    shares: dict[str, float | None] = {}
    for part in PARTS:
        spent = [
            (value, round_.wall_us)
            for round_ in rounds
            if not math.isnan(value := getattr(round_, f"{part}_us"))
        ]
        wall = sum(whole for _, whole in spent)
        shares[part] = sum(value for value, _ in spent) / wall if wall else None
    known = [share for share in shares.values() if share is not None]
    shares["other"] = max(0.0, 1 - sum(known)) if len(known) == len(PARTS) else None
    return shares


def _by_class(rounds: Iterable[RingRound], names: Mapping[int, str]) -> dict[str, float]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for round_ in rounds:
        for class_, emitted in zip(round_.classes, round_.emitted, strict=True):
            name = "other" if class_ == OTHER else names.get(class_, "other")
            sums[name][0] += emitted
            sums[name][1] += 1
    return {name: tokens / count for name, (tokens, count) in sorted(sums.items())}


def _by_arm(rounds: Iterable[RingRound], names: Mapping[int, str]) -> dict[str, ArmFigures]:
    """Figures by arm, sorted by name; empty if only one arm ran."""
    of_arm: dict[str, list[RingRound]] = defaultdict(list)
    for round_ in rounds:
        if round_.pair and round_.k and (name := names.get(round_.arm)):
            of_arm[name].append(round_)
    if len(of_arm) < 2:
        return {}
    return {
        name: ArmFigures(
            rounds=len(ran),
            tokens_per_round=sum(sum(one.emitted) for one in ran) / sum(len(one.k) for one in ran),
            round_ms=sum(one.wall_us for one in ran) / len(ran) / 1e3,
        )
        for name, ran in sorted(of_arm.items())
    }
