"""A verdict per class from a replay, always of grade `replayed`.

Both sides answer the same requests. But arrivals do not react to the engine, and a prefix cache
sees the trace twice. So a replay changes no gate by itself; a person may accept it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specscope.evaluate.experiment.blocks import BASELINE, arm_k
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.statistics import ratio
from specscope.evaluate.statistics.multiplicity import bonferroni
from specscope.evaluate.verdict.flags import overruled
from specscope.evaluate.verdict.verdict import (
    Action,
    Confidence,
    Flag,
    Grade,
    Reason,
    Verdict,
    Why,
    because,
)
from specscope.replay import contrast
from specscope.replay.client import Outcome
from specscope.replay.contrast import FEWEST_PARTS, Both, Gain
from specscope.replay.counters import Counted
from specscope.replay.schedule import Part
from specscope.replay.trace import Trace, classes_of
from specscope.store.buckets import CONTEXT, OUTPUT

BASELINES = (BASELINE, "clean")
FEWEST_REQUESTS, ENOUGH_PARTS = 30, 8
SMALLEST_EFFECT = 0.02
MOST_FAILED = 0.01
MOST_LATE_S = 0.1  # beyond, this machine and not the endpoints set the pace
SAME_LENGTH, LENGTHS_LEVEL = 0.05, 1e-3
NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True)
class Replayed:
    """The verdict on one class, or on all traffic (class None), and the gains of b over a.

    verdict: pairs counts requests, k is side b's. gains: the deciding one first.
    """

    verdict: Verdict
    gains: tuple[Gain, ...]

    @property
    def requests(self) -> int:
        """Number of requests that both sides completed."""
        return self.verdict.pairs


@dataclass(frozen=True, slots=True)
class JudgedReplay:
    """The results of every class, then of all traffic, and properties of the whole replay.

    batch: mean requests in flight on side a. largest: maximum of them. counted: the server's own
    counters by side; None if unknown. failures: by side, the most frequent error.
    """

    verdicts: tuple[Replayed, ...]
    flags: tuple[Flag, ...]
    failed: Mapping[str, int]
    outputs_compared: int
    outputs_differing: int
    batch: float
    largest: int
    counted: Mapping[str, Counted | None] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)


def shortfalls(trace: Trace, parts: Sequence[Part]) -> tuple[list[str], bool]:
    """Sentences on the limits of these settings, and whether they can decide nothing at all."""
    said = []
    asked = Counter(one.class_ for part in parts for one in part.requests)
    for name in classes_of(trace.requests):
        if asked[name] < FEWEST_REQUESTS:
            said.append(
                f"class {name} sends {asked[name]} requests: a verdict on it needs "
                f"{FEWEST_REQUESTS}, so lengthen the trace or raise --passes"
            )
    if len(parts) < FEWEST_PARTS:
        said.append(
            f"{len(parts)} parts give no interval: raise --parts or --passes to {ENOUGH_PARTS} "
            "parts or more"
        )
    elif len(parts) < ENOUGH_PARTS:
        said.append(
            f"confidence will be low: {len(parts)} parts of the {ENOUGH_PARTS} that it needs; "
            "raise --parts or --passes"
        )
    return said, len(parts) < FEWEST_PARTS or asked.total() < FEWEST_REQUESTS


def judge(
    trace: Trace,
    outcomes: Sequence[Outcome],
    arms: tuple[str, str],
    counted: Mapping[str, Counted | None] | None = None,
    *,
    level: float = 0.95,
) -> JudgedReplay:
    """arms: names of side a, the baseline, and side b, such as k0 and k4.

    counted: the server's own counters by side; unknown if left out
    """
    counted = counted or {}
    pairs = contrast.pair_up(trace.requests, outcomes)
    flags = (*_flags(trace, pairs, outcomes), *_compliance(arms, counted))
    names = classes_of(trace.requests)
    each = bonferroni(level, len(names))
    verdicts = []
    for name in names:
        mine = [both for both in pairs if both.asked.class_ == name]
        gains = (contrast.token_time(mine, each), contrast.first_token(mine, each),
                 contrast.chunk_gap(mine, each))  # fmt: skip
        verdicts.append(_verdict(name, mine, gains, arms, flags))
    spans = _spans(outcomes)
    whole = (contrast.throughput(pairs, spans, level), contrast.token_time(pairs, level))
    verdicts.append(_verdict(None, pairs, whole, arms, flags))
    coupled = [both for both in pairs if both.a.digest and both.b.digest]
    return JudgedReplay(
        verdicts=tuple(verdicts),
        flags=flags,
        failed={side: sum(o.side == side and bool(o.error) for o in outcomes) for side in "ab"},
        outputs_compared=len(coupled),
        outputs_differing=sum(both.a.digest != both.b.digest for both in coupled),
        batch=_in_flight(outcomes, spans),
        largest=_most_in_flight(outcomes),
        counted=counted,
        failures=_most_common_errors(outcomes),
    )


def _verdict(
    class_: str | None,
    pairs: Sequence[Both],
    gains: Sequence[Gain | None],
    arms: tuple[str, str],
    flags: Sequence[Flag],
) -> Replayed:
    known = tuple(gain for gain in gains if gain is not None)
    deciding = gains[0]
    action = _action(deciding, len(pairs), arms, flags)
    decided = action.settles
    parts = len({both.part for both in pairs})
    sound = decided and not flags and parts >= ENOUGH_PARTS
    requests = [both.asked for both in pairs]
    verdict = Verdict(
        segment=Segment(
            class_=class_,
            context=_shared([CONTEXT.name(_prompt_tokens(both)) for both in pairs]),
            output=_shared([OUTPUT.name(asked.max_tokens) for asked in requests]),
        ),
        action=action,
        k=arm_k(arms[1]) if action.gains else 0 if action is Action.DISABLE else None,
        grade=Grade.REPLAYED if deciding is not None and not flags else Grade.NONE,
        confidence=(Confidence.HIGH if sound else Confidence.LOW) if decided else Confidence.NONE,
        metric=deciding.metric if deciding else "",
        pairs=len(pairs),
        reasons=tuple(_reasons(known, deciding, len(pairs), parts, arms)),
        speedups=() if deciding is None else (estimate(deciding, len(pairs), arms),),
        best=(arms[1],),
        flags=tuple(flags),
    )
    return Replayed(verdict, known)


def estimate(gain: Gain, requests: int, arms: Sequence[str]) -> Estimate:
    """A gain as the speedup of a verdict."""
    k = arm_k(arms[1])
    return Estimate(arms[1], gain.value, gain.low, gain.high, requests, gain.level, arms[0], k)


def _action(
    gain: Gain | None, requests: int, arms: tuple[str, str], flags: Sequence[Flag]
) -> Action:
    return overruled(_of_gain(gain, requests, arms), flags)


def _of_gain(gain: Gain | None, requests: int, arms: tuple[str, str]) -> Action:
    if gain is None or gain.low is None or gain.high is None or requests < FEWEST_REQUESTS:
        return Action.INCONCLUSIVE
    if gain.low > 1.0 / (1.0 + SMALLEST_EFFECT) and gain.high < 1.0 + SMALLEST_EFFECT:
        return Action.NO_DIFFERENCE
    if gain.low > 1.0:
        return Action.SET_K if arm_k(arms[1]) else Action.KEEP
    return Action.DISABLE if gain.high < 1.0 else Action.INCONCLUSIVE


def _reasons(
    gains: Sequence[Gain],
    deciding: Gain | None,
    requests: int,
    parts: int,
    arms: tuple[str, str],
) -> list[Reason]:
    reasons = [
        because(
            Why.REPLAY_GAIN,
            arms[1],
            baseline=arms[0],
            metric=gain.metric,
            unit=gain.unit,
            a=gain.a,
            b=gain.b,
            value=gain.value,
            low=gain.low,
            high=gain.high,
        )
        for gain in gains
    ]
    if requests < FEWEST_REQUESTS:
        reasons.append(because(Why.FEW_REQUESTS, have=requests, least=FEWEST_REQUESTS))
    elif deciding is not None and deciding.low is None:
        reasons.append(because(Why.FEW_PARTS, have=parts, least=FEWEST_PARTS))
    elif parts < ENOUGH_PARTS:
        reasons.append(because(Why.FEW_PARTS, have=parts, least=ENOUGH_PARTS))
    return reasons


def _flags(trace: Trace, pairs: Sequence[Both], outcomes: Sequence[Outcome]) -> tuple[Flag, ...]:
    found = []
    asked = max(1, len(outcomes) // 2)
    if any(
        sum(o.side == side and bool(o.error) for o in outcomes) > MOST_FAILED * asked
        for side in "ab"
    ):
        found.append(Flag.FAILURES)
    late = sorted(o.late_s for o in outcomes)
    if late and late[int(0.95 * (len(late) - 1))] > MOST_LATE_S:
        found.append(Flag.LATE)
    if trace.synthetic:
        found.append(Flag.SYNTHETIC_PROMPTS)
    if _lengths_differ(pairs):
        found.append(Flag.LENGTHS_DIFFER)
    return tuple(found)


def _compliance(arms: tuple[str, str], counted: Mapping[str, Counted | None]) -> list[Flag]:
    """Whether the sides' own counters agree with their names."""
    baseline, other = counted.get("a"), counted.get("b")
    flags = []
    if arms[0] in BASELINES and baseline is not None and baseline.proposed:
        flags.append(Flag.BASELINE_DRAFTS)
    if arm_k(arms[1]) and other is not None and not other.proposed:
        flags.append(Flag.NOT_DRAFTED)
    return flags


def _lengths_differ(pairs: Sequence[Both]) -> bool:
    """Whether one side writes longer texts with confidence; sampled texts also differ by chance."""
    a, b = ([getattr(both, side).output_tokens or 0 for both in pairs] for side in "ab")
    if len(pairs) < 2 or not sum(a) or not sum(b):
        return False
    ones = [1.0] * len(pairs)
    found = ratio.paired_log_ratio(b, ones, a, ones)
    p_value = found.p_value()
    return p_value is not None and p_value < LENGTHS_LEVEL and abs(found.delta) > SAME_LENGTH


def _most_common_errors(outcomes: Sequence[Outcome]) -> dict[str, str]:
    by_side: dict[str, Counter[str]] = defaultdict(Counter)
    for one in outcomes:
        if one.error:
            by_side[one.side][one.error] += 1
    return {side: errors.most_common(1)[0][0] for side, errors in by_side.items()}


def _prompt_tokens(both: Both) -> int | None:
    return both.a.prompt_tokens or both.asked.prompt_tokens


def _shared(buckets: Sequence[str]) -> str | None:
    """The bucket of nearly all requests, if there is one."""
    if not buckets:
        return None
    most = max(sorted(set(buckets)), key=buckets.count)
    return most if buckets.count(most) >= NEARLY_ALL * len(buckets) else None


def _spans(outcomes: Sequence[Outcome]) -> dict[tuple[int, str], float]:
    """Seconds of each part on each side, to its last answer."""
    spans: dict[tuple[int, str], float] = {}
    for one in outcomes:
        key = (one.part, one.side)
        spans[key] = max(spans.get(key, 0.0), one.ended_s)
    return spans


def _in_flight(outcomes: Sequence[Outcome], spans: Mapping[tuple[int, str], float]) -> float:
    """Mean requests in flight on side a, by Little's law."""
    busy = math.fsum(one.ended_s - one.began_s for one in outcomes if one.side == "a")
    span = math.fsum(length for (_, side), length in spans.items() if side == "a")
    return busy / span if span > 0 else 0.0


def _most_in_flight(outcomes: Sequence[Outcome]) -> int:
    steps = [(one.part, at, step) for one in outcomes if one.side == "a"
             for at, step in ((one.began_s, 1), (one.ended_s, -1))]  # fmt: skip
    running = most = 0
    for _, _, step in sorted(steps):
        running += step
        most = max(most, running)
    return most
