"""Differences between two arms besides speculation: load, outputs, settings, overhead without
drafts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specscope.analyze.arms import HIGHER_IS_BETTER, Trials
from specscope.analyze.result import Speedup
from specscope.readers.records import Finding
from specscope.readers.tables import headers
from specscope.readers.tables.attributes import one_sided, unlike
from specscope.readers.tables.command_lines import MODEL, is_command, options_apart
from specscope.readers.tables.names import is_drafter

BAND = 0.02
"""Within 2 % of even there is no difference that a benchmark run would repeat."""

LOADS_DIFFER = math.log(1.2)
"""A fifth more requests at once changes the cost of a step as much as speculation does."""


def loads(arm: Trials, base: Trials) -> Finding | None:
    """Check unmatched inputs for equal concurrency and equal prompt and output lengths."""
    differing = {}
    for quantity in ("running", "prompt_tokens"):
        ours, theirs = arm.mean(quantity), base.mean(quantity)
        if ours and theirs and abs(math.log(ours / theirs)) > LOADS_DIFFER:
            differing[quantity] = [round(ours, 2), round(theirs, 2)]
    if not differing:
        return None
    said = ", ".join(f"{name} {a:g} against {b:g}" for name, (a, b) in differing.items())
    return Finding(
        "LOADS_DIFFER",
        f"{arm.name} and {base.name} ran under different loads ({said}): not comparable",
        {"arm": arm.name, "baseline": base.name, **differing},
    )


def unlike_arms(arm: Trials, base: Trials) -> Finding | None:
    """Differences in engine, precision, machine or model size, stated on both sides or on one."""
    ours, theirs = (
        " ".join([t.name, *(str(t.settings.get(n, "")) for n in headers.MACHINE)])
        for t in (arm, base)
    )
    both, one = unlike(ours, theirs), one_sided(ours, theirs)
    if is_command(arm.name) and is_command(base.name):
        both += ["model"] if MODEL & set(options_apart(arm.name, base.name)) else []
    both += [n for n in headers.MACHINE if _differ(arm.settings.get(n), base.settings.get(n))]
    if not both and not one:
        return None
    said = f"{arm.name} and {base.name} give another {', '.join(both)}: not comparable"
    if not both:
        names = ", ".join(one)
        said = f"only one of {arm.name} and {base.name} gives its {names}: the other may differ"
    return Finding(
        "ARMS_DIFFER", said, {"arm": arm.name, "baseline": base.name, "both": both, "one": one}
    )


def adds(arm: Trials, base: Trials) -> Finding | None:
    """An addition in an arm's name besides speculation (`MTP + TurboQuant`)."""
    commands = is_command(arm.name) and is_command(base.name)
    apart = options_apart(arm.name, base.name) if commands else []
    if apart:
        said = f"the commands differ in {', '.join(apart)} too: the gain may not be speculation's"
        evidence = {"arm": arm.name, "baseline": base.name, "options": apart}
        return Finding("ARMS_DIFFER", said, evidence)
    parts = [part.strip() for part in re.split(r"\s\+\s|\s&\s| plus ", arm.name)]
    known = set(re.findall(r"\w+", base.name.lower()))
    more = [
        part
        for part in parts
        if len(parts) > 1
        and not is_drafter(part)
        and not set(re.findall(r"\w+", part.lower())) <= known
    ]
    if not more:
        return None
    what = ", ".join(more)
    said = f"{arm.name} adds {what} to {base.name}: the gain is not speculation's alone"
    return Finding("ARMS_DIFFER", said, {"arm": arm.name, "baseline": base.name, "adds": more})


def _differ(ours: object, theirs: object) -> bool:
    return bool(ours and theirs) and str(ours).lower().split() != str(theirs).lower().split()


def tax(klass: Mapping[str, Any], comparisons: Sequence[Speedup]) -> Iterator[Finding]:
    """The overhead of speculation that drafts nothing."""
    for comparison in comparisons[:1]:
        cost = 1 / comparison.speedup - 1
        change = comparison.speedup - 1 if comparison.metric in HIGHER_IS_BETTER else cost
        if abs(cost) > BAND:
            yield Finding(
                "K0_IS_NOT_BASELINE",
                f"{comparison.arm} drafts nothing, and its {comparison.metric} is {change:+.1%} "
                f"against {comparison.baseline}",
                {"class": dict(klass), "metric": comparison.metric, "tax": round(cost, 4)},
            )


def settings(
    decisive: Sequence[tuple[Trials, float, tuple[float, float] | None]],
) -> Iterator[Finding]:
    """Winning and losing arms that differ in a setting other than k."""
    winners = [arm for arm, value, _ in decisive if value > 1 + BAND]
    losers = [arm for arm, value, _ in decisive if value < 1 - BAND]
    names = {
        name
        for winner in winners
        for loser in losers
        for name in set(winner.settings) | set(loser.settings)
        if winner.settings.get(name) != loser.settings.get(name)
    }
    same_k = any(w.k is not None and w.k == other.k for w in winners for other in losers)
    if names or same_k:
        yield Finding(
            "CONFIG_DIFFERS",
            "arms that win and lose differ in "
            + (", ".join(sorted(names)) or "something the table does not show")
            + (" at the same k, and perhaps in code" if same_k else ""),
            {"settings": sorted(names), "same_k": same_k},
        )
