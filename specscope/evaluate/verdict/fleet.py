"""The verdict on all traffic, its missing evidence, and the repairs that would change it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specscope.evaluate.causes.diagnosis import NO_SINGLE_FIX
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.verdict.verdict import Action, Reason, Value, Verdict, Why, because

Key = tuple[str, tuple[tuple[str, Value], ...]]


class FleetAction(StrEnum):
    """What to do with all traffic together."""

    KEEP = "keep"
    ROUTE_SELECTIVELY = "route_selectively"
    REMOVE_EVERYWHERE = "remove_everywhere"
    COLLECT_BASELINE = "collect_baseline"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """The verdict on all traffic, and the segments behind it.

    gain, fail, undecided, bare: names of segments; bare ones lack target-only blocks. still_needed:
    missing evidence of undecided traffic. would_change: repairs that would turn a loss into a gain.
    """

    action: FleetAction
    gain: tuple[str, ...] = ()
    fail: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    still_needed: tuple[Reason, ...] = ()
    would_change: tuple[Reason, ...] = ()


def fleet_verdict(
    verdicts: Sequence[Verdict], load_names: Mapping[str, str] | None = None
) -> FleetVerdict:
    """The verdict on all traffic: keep if every segment gains, remove if none can, else route.

    A segment with wrong outputs or counters does not gain. load_names: names of load buckets.
    """
    if not verdicts:
        return FleetVerdict(FleetAction.NO_DATA)
    names = segment_names(((v.epoch, v.segment) for v in verdicts), load_names)
    groups: dict[str, list[str]] = defaultdict(list)
    needed: dict[Key, list[str]] = defaultdict(list)
    change: dict[Key, list[str]] = defaultdict(list)
    for verdict in verdicts:
        name = names[verdict.epoch, verdict.segment]
        groups[_group(verdict.action)].append(name)
        if (need := _need(verdict)) is not None:
            needed[_key(need)].append(name)
        elif (turn := _turn(verdict)) is not None:
            change[_key(turn)].append(name)
    return FleetVerdict(
        action=_whole(groups),
        gain=tuple(groups["gain"]),
        fail=tuple(groups["fail"]),
        undecided=tuple(groups["undecided"]),
        bare=tuple(groups["bare"]),
        still_needed=tuple(_with_segments(needed)),
        would_change=tuple(_with_segments(change)),
    )


def _group(action: Action) -> str:
    if action.gains:
        return "gain"
    if action.fails:
        return "fail"
    return "bare" if action is Action.COLLECT_BASELINE else "undecided"


def _whole(groups: Mapping[str, Sequence[str]]) -> FleetAction:
    gain, fail, undecided, bare = (
        bool(groups.get(name)) for name in ("gain", "fail", "undecided", "bare")
    )
    if gain:
        alone = not (fail or undecided or bare)
        return FleetAction.KEEP if alone else FleetAction.ROUTE_SELECTIVELY
    if fail and not (undecided or bare):
        return FleetAction.REMOVE_EVERYWHERE
    if bare and not (fail or undecided):
        return FleetAction.COLLECT_BASELINE
    return FleetAction.INCONCLUSIVE


def _key(reason: Reason) -> Key:
    return reason.code, tuple(reason.numbers.items())


def _with_segments(grouped: Mapping[Key, Sequence[str]]) -> list[Reason]:
    """One reason for all segments that share it."""
    return [
        Reason(code, None, {**dict(numbers), "segments": tuple(names)})
        for (code, numbers), names in grouped.items()
    ]


def segment_names(
    keys: Iterable[tuple[str, Segment]], load_names: Mapping[str, str] | None = None
) -> dict[tuple[str, Segment], str]:
    """The shortest unique name of each segment, such as `sql, light`.

    It has class and load. Context and requested output follow if two segments would otherwise share
    a name, and then the epoch.
    """
    named: dict[tuple[str, Segment], str] = {}
    waiting = list(dict.fromkeys(keys))
    for detail in range(3):
        tried = {key: _name(*key, load_names or {}, detail) for key in waiting}
        often = Counter(tried.values())
        named |= tried
        waiting = [key for key in waiting if often[tried[key]] > 1]
    return named


def _name(epoch: str, segment: Segment, load_names: Mapping[str, str], detail: int) -> str:
    words = [segment.class_ or "mixed classes"]
    if detail:
        words += [text for text in (segment.context, segment.output) if text]
    parts = [" ".join(words)]
    if segment.load is not None:
        parts.append(load_names.get(segment.load, f"load {segment.load}"))
    if detail > 1:
        parts.append(f"epoch {epoch or 'unknown'}")
    return ", ".join(parts)


def _need(verdict: Verdict) -> Reason | None:
    """The evidence that an undecided segment lacks."""
    if verdict.action is Action.COLLECT_BASELINE:
        return because(Why.BASELINE_BLOCKS)
    if verdict.action is Action.INCONCLUSIVE and not verdict.speedups:
        return because(Why.FOLLOWED_PAIRS)
    if verdict.action is Action.INCONCLUSIVE:
        return because(Why.PAIRS_NEEDED, pairs=verdict.pairs_needed or 2 * verdict.pairs)
    if verdict.action is Action.NOT_COMPARABLE and verdict.flags:
        return because(Why.REMEDY, flag=verdict.flags[0])
    return None


def _turn(verdict: Verdict) -> Reason | None:
    """The change that would turn a loss into a gain."""
    if verdict.action is Action.ENGINE_FAULT and verdict.flags:
        return because(Why.REMEDY, flag=verdict.flags[0])
    if verdict.action is not Action.DISABLE or not verdict.cause_odds:
        return None
    causes = tuple(one.cause for one in verdict.cause_odds if one.odds is not None)
    if NO_SINGLE_FIX in causes:
        return because(Why.BETTER_DRAFT)
    return because(Why.REPAIR, causes=causes)
