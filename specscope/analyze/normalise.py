"""Windows held to their identities: impossible values become unknown, contradictions are said.

acceptance_rate = accepted / proposed
mean_length     = 1 + accepted / drafts = 1 + sum of position_rates
coverage        = (drafts + accepted) / generated
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from specscope.readers.records import HALF_RATE_DIGIT, Finding, Window

LONGEST = 1025
"""No engine drafts more than 1 024 tokens."""


def normalise(window: Window) -> tuple[Window, list[Finding]]:
    """The window without impossible values, and what was wrong with it."""
    wrong = _impossible(window)
    findings: list[Finding] = []
    if wrong:
        text = f"{', '.join(wrong)}: not possible, stored as unknown"
        findings.append(Finding("IMPOSSIBLE_VALUE", text, wrong))
        window = replace(window, **dict.fromkeys(wrong))  # type: ignore[arg-type]
    findings += _disagreements(window)
    return window, findings


def _impossible(window: Window) -> dict[str, object]:
    wrong: dict[str, object] = {}
    drafts, proposed, accepted = window.drafts, window.proposed, window.accepted
    for name in ("drafts", "proposed", "accepted", "came_out", "generated", "running", "waiting"):
        value = getattr(window, name)
        if value is not None and value < 0:
            wrong[name] = value
    if accepted is not None and proposed is not None and accepted > proposed:
        wrong |= {"accepted": accepted, "proposed": proposed}
    if drafts is not None and proposed is not None and drafts > proposed:
        wrong["drafts"] = drafts
    rate, length = window.printed_rate, window.printed_length
    if rate is not None and not 0 <= rate <= 1:
        wrong["printed_rate"] = rate
    if length is not None and not 1 <= length <= LONGEST and drafts != 0:
        wrong["printed_length"] = length
    positions = window.printed_positions
    if positions and any([r is not None and not 0 <= r <= 1 for r in positions]):
        wrong["printed_positions"] = list(positions)
    at = window.counted_at
    if at and any([b > a for a, b in pairwise(at)]):
        wrong["counted_at"] = list(at)
    return wrong


def _disagreements(window: Window) -> Iterator[Finding]:
    """Where printed figures and counts, or length and positions, contradict each other."""
    drafts, accepted = window.drafts, window.accepted
    if not drafts or accepted is None:
        return
    counted = 1 + accepted / drafts
    printed = window.printed_length
    if printed is not None and abs(printed - counted) > window.tolerance:
        yield Finding(
            "AGGREGATION_DEFECT",
            f"printed length {printed:.3f} against {counted:.3f} from counts",
            {"printed": printed, "counted": round(counted, 4)},
        )
    total, slack = None, 0.006
    if window.counted_at:
        total = sum(window.counted_at) / drafts
    elif window.printed_positions and None not in window.printed_positions:
        total = sum([rate or 0.0 for rate in window.printed_positions])
        slack += HALF_RATE_DIGIT * len(window.printed_positions)
    if total is not None and abs(1 + total - counted) > slack:
        yield Finding(
            "AGGREGATION_DEFECT",
            f"1 + sum of position rates is {1 + total:.3f}, mean length is {counted:.3f}",
            {"from_positions": round(1 + total, 4), "from_counts": round(counted, 4)},
        )
