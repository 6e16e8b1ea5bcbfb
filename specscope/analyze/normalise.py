"""One definition for every window: rates from counts, identities checked, the impossible unknown.

acceptance_rate = accepted / proposed
mean_length     = 1 + accepted / drafts = 1 + sum of position_rates
coverage        = (drafts + accepted) / generated
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from specscope.readers.records import Finding, Window

HALF_RATE_DIGIT = 0.00051
OVERSHOOT = 1.15
"""Coverage a little above 1 comes from rounded rates and over-counted ends; beyond, unknown."""


def normalise(window: Window) -> tuple[Window, list[Finding]]:
    """The window in our definitions, and what was wrong with it."""
    findings: list[Finding] = []
    window = _possible(window, findings)
    findings += _disagreements(window)
    return _derived(window), findings


def _possible(window: Window, findings: list[Finding]) -> Window:
    """Impossible values become None."""
    wrong: dict[str, object] = {}
    drafts, proposed, accepted = window.drafts, window.proposed, window.accepted
    for name in ("drafts", "proposed", "accepted", "emitted", "generated", "running", "waiting"):
        value = getattr(window, name)
        if value is not None and value < 0:
            wrong[name] = value
    if proposed is not None and accepted is not None and accepted > proposed:
        wrong |= {"accepted": accepted, "proposed": proposed}
    if drafts is not None and proposed is not None and drafts > proposed:
        wrong["drafts"] = drafts
    rate, mean = window.acceptance_rate, window.mean_length
    if rate is not None and not 0 <= rate <= 1:
        wrong["acceptance_rate"] = rate
    if mean is not None and not 1 <= mean <= 1025 and drafts != 0:
        wrong["mean_length"] = mean
    positions = window.position_rates
    if positions and any(r is not None and not 0 <= r <= 1 for r in positions):
        wrong["position_rates"] = list(positions)
    at = window.accepted_at
    if at and any(b > a for a, b in itertools.pairwise(at)):
        wrong["accepted_at"] = list(at)
    if not wrong:
        return window
    findings.append(
        Finding(
            "IMPOSSIBLE_VALUE", f"{', '.join(wrong)}: not possible, stored as unknown", dict(wrong)
        )
    )
    return replace(window, **dict.fromkeys(wrong))  # type: ignore[arg-type]


def _disagreements(window: Window) -> Iterator[Finding]:
    """Where printed figures and counts, or length and positions, contradict each other."""
    drafts, accepted = window.drafts, window.accepted
    if not drafts or accepted is None:
        return
    counted = 1 + accepted / drafts
    printed = window.mean_length
    if printed is not None and abs(printed - counted) > window.tolerance:
        yield Finding(
            "AGGREGATION_DEFECT",
            f"printed length {printed:.3f} against {counted:.3f} from counts",
            {"printed": printed, "counted": round(counted, 4)},
        )
    total, slack = None, 0.006
    if window.accepted_at:
        total = sum(window.accepted_at) / drafts
    elif window.position_rates and None not in window.position_rates:
        total = sum(rate or 0 for rate in window.position_rates)
        slack += HALF_RATE_DIGIT * len(window.position_rates)
    if total is not None and abs(1 + total - counted) > slack:
        yield Finding(
            "AGGREGATION_DEFECT",
            f"1 + sum of position rates is {1 + total:.3f}, mean length is {counted:.3f}",
            {"from_positions": round(1 + total, 4), "from_counts": round(counted, 4)},
        )


def _derived(window: Window) -> Window:
    drafts, proposed, accepted = window.drafts, window.proposed, window.accepted
    rate, mean, coverage = window.acceptance_rate, window.mean_length, None
    if proposed is not None and accepted is not None:
        rate = accepted / proposed if proposed else None
    if drafts is not None and accepted is not None:
        mean = 1 + accepted / drafts if drafts else None
        if window.generated:
            coverage = (drafts + accepted) / window.generated
            coverage = min(coverage, 1.0) if coverage <= OVERSHOOT else None
    emitted = window.emitted
    if emitted is None and drafts is not None and accepted is not None:
        emitted = drafts + accepted
    at, positions = window.accepted_at, window.position_rates
    if at is None:
        at = _counts(window)
    if at is not None and drafts:
        positions = tuple(n / drafts for n in at)
    return replace(
        window,
        acceptance_rate=rate,
        mean_length=mean,
        coverage=coverage,
        emitted=emitted,
        accepted_at=at,
        position_rates=positions,
    )


def _counts(window: Window) -> tuple[int, ...] | None:
    """Counts behind rounded position rates, where only one set of whole numbers fits."""
    rates, drafts = window.position_rates, window.drafts
    if not rates or not drafts or None in rates or HALF_RATE_DIGIT * drafts >= 0.5:
        return None
    counts = tuple(round((rate or 0) * drafts) for rate in rates)
    return counts if sum(counts) == window.accepted else None
