"""Check identities of windows: impossible values become unknown, contradictions become findings.

acceptance_rate = accepted / proposed
mean_length     = 1 + accepted / drafts = 1 + sum of position_rates
coverage        = (drafts + accepted) / generated
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from specscope.readers.records import HALF_RATE_DIGIT, LONGEST_DRAFT, Finding, Window

_COUNTS = ("drafts", "proposed", "accepted", "came_out", "generated", "running", "waiting")


def normalise(window: Window) -> tuple[Window, list[Finding]]:
    """The window without impossible values, and its findings."""
    wrong = _impossible(window)
    if not wrong:
        return window, _disagreements(window)
    text = f"{', '.join(wrong)}: not possible, stored as unknown"
    window = replace(window, **dict.fromkeys(wrong))  # type: ignore[arg-type]
    return window, [Finding("IMPOSSIBLE_VALUE", text, wrong), *_disagreements(window)]


def _impossible(window: Window) -> dict[str, object]:
    wrong: dict[str, object] = {}
    drafts, proposed, accepted = window.drafts, window.proposed, window.accepted
    counts = (drafts, proposed, accepted, window.came_out, window.generated, window.running)
    if min(count or 0 for count in (*counts, window.waiting)) < 0:
        for name in _COUNTS:
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
    if length is not None and not 1 <= length <= LONGEST_DRAFT + 1 and drafts != 0:
        wrong["printed_length"] = length
    positions = window.printed_positions
    if positions and _out_of_range(positions):
        wrong["printed_positions"] = list(positions)
    at = window.counted_at
    if at and any(b > a for a, b in pairwise(at)):
        wrong["counted_at"] = list(at)
    return wrong


def _disagreements(window: Window) -> list[Finding]:
    """Contradictions between printed figures and counts, or between length and positions."""
    found: list[Finding] = []
    drafts, accepted = window.drafts, window.accepted
    if not drafts or accepted is None:
        return found
    counted = 1 + accepted / drafts
    printed = window.printed_length
    if printed is not None and abs(printed - counted) > window.tolerance:
        found.append(
            Finding(
                "AGGREGATION_DEFECT",
                f"printed length {printed:.3f} against {counted:.3f} from counts",
                {"printed": printed, "counted": round(counted, 4)},
            )
        )
    total, slack = None, 0.006
    positions = window.printed_positions
    if window.counted_at:
        total = sum(window.counted_at) / drafts
    elif positions and None not in positions:
        total = sum(positions)  # type: ignore[arg-type]
        slack += HALF_RATE_DIGIT * len(positions)
    if total is not None and abs(1 + total - counted) > slack:
        found.append(
            Finding(
                "AGGREGATION_DEFECT",
                f"1 + sum of position rates is {1 + total:.3f}, mean length is {counted:.3f}",
                {"from_positions": round(1 + total, 4), "from_counts": round(counted, 4)},
            )
        )
    return found


def _out_of_range(rates: tuple[float | None, ...]) -> bool:
    known = [rate for rate in rates if rate is not None]
    return bool(known) and not (min(known) >= 0 and max(known) <= 1)
