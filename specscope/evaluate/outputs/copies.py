"""Compare the outputs of equal requests between arms, and of target-only with itself (A/A).

Floating-point sums depend on the batch size, which can flip a near tie between two tokens. So two
runs of target-only differ in some outputs (A/A). Only differences of a speculative arm beyond that
are a fault. A request counts once on each side, so copies add no evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy import stats

from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.outputs.states import AS_TWINS, DIFFERS, EQUAL, UNDECIDED

LEVEL = 0.01


@dataclass(frozen=True, slots=True)
class Copies:
    """Number of requests with two known outputs, and how many of them differ.

    For arm `k0` both outputs are target-only's; for other arms, one is the arm's and one
    target-only's.
    """

    epoch: str
    class_: str
    arm: str
    compared: int
    differing: int


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """One arm's outputs beside target-only's.

    state: equal (none differs), as_twins (no more than A/A), differs (more than A/A, with
    confidence) or undecided (some differ, and A/A has too few copies). excess: share of differing
    requests minus that of A/A, with its 95 % interval; None if target-only was never repeated.
    """

    epoch: str
    class_: str
    arm: str
    compared: int
    differing: int
    twins: int
    twins_differing: int
    state: str
    excess: float | None
    low: float | None
    high: float | None
    p_value: float | None

    def __str__(self) -> str:
        beside = (
            f"target-only from itself in {self.twins_differing} of {self.twins}"
            if self.twins
            else "target-only was never repeated"
        )
        return f"{self.arm}: {self.differing} of {self.compared} outputs differ, {beside}"


def check_outputs(copies: Iterable[Copies], baseline: str = "k0") -> list[OutputCheck]:
    """Check each arm of each class against target-only, at a joint level over all of them."""
    rows = sorted(copies, key=lambda one: (one.epoch, one.class_, one.arm))
    twins = {(c.epoch, c.class_): c for c in rows if c.arm == baseline}
    arms = [one for one in rows if one.arm != baseline and one.compared > 0]
    level = LEVEL / max(1, len(arms))
    checks = []
    for one in arms:
        twin = twins.get((one.epoch, one.class_))
        counts = (twin.compared, twin.differing) if twin else (0, 0)
        checks.append(_check(one, *counts, level))
    return checks


def worst(checks: Sequence[OutputCheck]) -> str | None:
    """The worst state of all checks; None if nothing was compared."""
    order = (DIFFERS, UNDECIDED, AS_TWINS, EQUAL)
    return next((state for state in order if any(c.state == state for c in checks)), None)


def changed_outputs(
    checks: Sequence[OutputCheck], epoch: str, segment: Segment
) -> list[OutputCheck]:
    """The checks of a segment's class; of every class if several ran."""
    return [
        check for check in checks if check.epoch == epoch and segment.class_ in (None, check.class_)
    ]


def newcombe(
    hits: int, of: int, base_hits: int, base_of: int, level: float = 0.95
) -> tuple[float, float]:
    """Interval of a difference of two shares, from Wilson's limits of each. [-1..1]

    Source: Newcombe 1998, method 10. ValueError for an empty side.
    """
    share, base = hits / of, base_hits / base_of
    low, high = wilson(hits, of, level)
    base_low, base_high = wilson(base_hits, base_of, level)
    gap = share - base
    return (
        gap - math.hypot(share - low, base_high - base),
        gap + math.hypot(high - share, base - base_low),
    )


def wilson(hits: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of a share, by Wilson's score. [0..1] ValueError for zero trials."""
    if not 0 <= hits <= of or of == 0:
        raise ValueError(f"no share: {hits} of {of}")
    z = float(stats.norm.ppf(0.5 + level / 2))
    share = hits / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return max(0.0, middle - half), min(1.0, middle + half)


def excess_p(hits: int, of: int, base_hits: int, base_of: int) -> float:
    """p-value of this many differences if the share equals the base's; Fisher's exact test,
    one-sided."""
    table = [[hits, of - hits], [base_hits, base_of - base_hits]]
    return float(stats.fisher_exact(table, alternative="greater").pvalue)


def _check(one: Copies, twins: int, twins_differing: int, level: float) -> OutputCheck:
    excess = low = high = p_value = None
    if twins:
        excess = one.differing / one.compared - twins_differing / twins
        low, high = newcombe(one.differing, one.compared, twins_differing, twins)
        p_value = excess_p(one.differing, one.compared, twins_differing, twins)
    if one.differing == 0:
        state = EQUAL
    elif p_value is None or high is None:
        state = UNDECIDED
    elif p_value < level:
        state = DIFFERS
    else:
        # Twins that are few could not have shown a fault.
        state = AS_TWINS if high < _MUCH else UNDECIDED
    return OutputCheck(
        epoch=one.epoch,
        class_=one.class_,
        arm=one.arm,
        compared=one.compared,
        differing=one.differing,
        twins=twins,
        twins_differing=twins_differing,
        state=state,
        excess=excess,
        low=low,
        high=high,
        p_value=p_value,
    )


# An excess of one output in ten would have been seen.
_MUCH = 0.1
