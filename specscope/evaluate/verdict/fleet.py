"""The verdict on the whole, what it still needs, and what would change it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.causes.diagnosis import NO_SINGLE_FIX
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.verdict.decide import Verdict
from specscope.evaluate.verdict.flags import NOT_SWAPPED

WINS = ("keep", "set_k")
LOSSES = ("disable", "no_difference", "route", "engine_fault")

_NEEDS = {
    "SAMPLE_RATIO": "a router that does not see the arm",
    "TWINS_DIFFER": "blocks in which the same policy run twice agrees with itself",
    "BASELINE_DRAFTS": "a baseline that does not draft",
    "IMPOSSIBLE_COUNTS": "an engine whose counters can be",
    NOT_SWAPPED: "a deploy with the configurations of the sides swapped",
    "OUTPUTS_DIFFER": "outputs that equal target-only's",
}


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """keep, route_selectively, remove_everywhere, collect_baseline, inconclusive or no_data.

    still_needed: evidence that undecided traffic lacks. would_change: what would turn a loss.
    """

    action: str
    reasons: tuple[str, ...]
    still_needed: tuple[str, ...]
    would_change: tuple[str, ...]


def fleet_verdict(
    verdicts: Sequence[Verdict], load_names: Mapping[str, str] | None = None
) -> FleetVerdict:
    """The whole: keep where every segment gains, remove where none can, else route.

    A segment whose outputs or counters are wrong does not gain. load_names: words for buckets
    of load.
    """
    if not verdicts:
        return FleetVerdict("no_data", ("no blocks of an experiment",), (), ())
    names = segment_names(((v.epoch, v.segment) for v in verdicts), load_names)
    wins = [v for v in verdicts if v.action in WINS]
    losses = [v for v in verdicts if v.action in LOSSES]
    bare = [v for v in verdicts if v.action == "collect_baseline"]
    open_ = [v for v in verdicts if v not in wins and v not in losses and v not in bare]
    reasons = tuple(
        f"{len(group)} of {len(verdicts)} segments {what}: "
        + ", ".join(names[v.epoch, v.segment] for v in group)
        for group, what in (
            (wins, "gain"),
            (losses, "do not gain"),
            (open_, "are undecided"),
            (bare, "lack target-only blocks"),
        )
        if group
    )
    if wins and not losses and not open_ and not bare:
        action = "keep"
    elif wins:
        action = "route_selectively"
    elif losses and not open_ and not bare:
        action = "remove_everywhere"
    elif bare and not losses and not open_:
        action = "collect_baseline"
    else:
        action = "inconclusive"
    needed: dict[str, list[str]] = defaultdict(list)
    change: dict[str, list[str]] = defaultdict(list)
    for verdict in verdicts:
        name = names[verdict.epoch, verdict.segment]
        if (need := _need(verdict)) is not None:
            needed[need].append(name)
        elif (turn := _turn(verdict)) is not None:
            change[turn].append(name)
    return FleetVerdict(
        action,
        reasons,
        tuple(f"{need} of {'; '.join(of)}" for need, of in needed.items()),
        tuple(f"{turn} would make {'; '.join(of)} pay" for turn, of in change.items()),
    )


def segment_names(
    keys: Iterable[tuple[str, Segment]], load_names: Mapping[str, str] | None = None
) -> dict[tuple[str, Segment], str]:
    """The shortest name of each segment that no other has: `sql, light`.

    Class and load; context and requested output where these are needed to tell two apart, and
    the epoch where even they are not enough.
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


def _need(verdict: Verdict) -> str | None:
    """What evidence an undecided segment lacks."""
    if verdict.action == "collect_baseline":
        return "blocks at k = 0 beside the others"
    if verdict.action == "inconclusive" and not verdict.speedups:
        return "pairs of k = 0 and another draft length that the engine follows"
    if verdict.action == "inconclusive":
        return f"about {verdict.pairs_needed or 2 * verdict.pairs} pairs in all"
    if verdict.action == "not_comparable":
        return next((words for flag, words in _NEEDS.items() if flag in verdict.flags), None)
    return None


def _turn(verdict: Verdict) -> str | None:
    """What would turn a loss into a gain."""
    if verdict.action == "engine_fault":
        return next((words for flag, words in _NEEDS.items() if flag in verdict.flags), None)
    if verdict.action != "disable" or verdict.primary is None:
        return None
    if verdict.primary == NO_SINGLE_FIX:
        return "a draft that is cheaper and agrees more often with the target"
    return f"repair of {verdict.primary}"
