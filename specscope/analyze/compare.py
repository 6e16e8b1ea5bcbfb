"""Arms against their baseline: comparisons, and the verdict of each class."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from specscope.analyze.arms import Group, Trials, output_tokens, ratio
from specscope.analyze.differences import BAND, loads, settings, tax
from specscope.analyze.result import Comparison, Verdict
from specscope.readers.records import Finding

INPUTS = "inputs"
"""The scope of arms that are whole inputs, which nobody matched."""

UNSURE = 0.05
TENTH = math.log1p(0.10)
"""Outputs that differ by more than 10 % are not the same outputs."""

METRICS = ("throughput_tok_s", "tpot_ms", "request_s", "latency_ms")
PER_TOKEN = ("throughput_tok_s", "tpot_ms")


def judged(group: Group) -> tuple[list[Comparison], Verdict | None, list[Finding]]:
    """One class: every comparison that its arms allow, and what follows."""
    baselines = group.of_role("target_only")
    speculative = group.of_role("speculative")
    if not baselines:
        return _without_baseline(group, speculative)
    base = baselines[0]
    comparisons: list[Comparison] = []
    findings: list[Finding] = []
    decisive: list[tuple[Trials, float, tuple[float, float] | None]] = []
    reasons: list[str] = []
    disagree = False
    apart: list[str] = []
    for arm in group.of_role("speculative", "k0"):
        own, found = _against(group, arm, base)
        comparisons += own
        findings += found
        if arm.role == "k0":
            findings += tax(group.klass, own)
            continue
        usable = [c for c in own if c.comparable]
        apart += [f.text for f in found if own and not usable]
        if not usable:
            continue
        first = usable[0]
        decisive.append((arm, first.speedup, first.ci))
        reasons.append(_said(first))
        per_token = [c.speedup for c in usable if c.metric in PER_TOKEN]
        if len(per_token) == 2 and min(per_token) < 1 - BAND and max(per_token) > 1 + BAND:
            disagree = True
            findings.append(
                Finding(
                    "METRICS_DISAGREE",
                    f"{arm.name}: throughput and time per token disagree",
                    {"throughput": round(per_token[0], 4), "tpot": round(per_token[1], 4)},
                )
            )
    if not decisive:
        verdict = None
        if apart:
            verdict = Verdict(group.klass, "not_comparable", None, None, "high", tuple(apart))
        return comparisons, verdict, findings
    findings += settings(decisive)
    reasons += [f.text for f in findings if f.code in ("CONFIG_DIFFERS", "OUTPUTS_DIFFER")]
    return comparisons, _verdict(group, decisive, reasons, disagree), findings


def varying(verdicts: list[Verdict]) -> Iterator[Finding]:
    """Whether the verdict depends on the class, and on which dimension of it."""
    dimensions: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for verdict in verdicts:
        for dimension, value in verdict.klass.items():
            dimensions[dimension][str(value)].add(verdict.action)
    for dimension, actions in dimensions.items():
        if len(actions) > 1 and len({a for group in actions.values() for a in group}) > 1:
            yield Finding(
                "VERDICT_VARIES",
                f"the verdict changes with {dimension}: "
                + ", ".join(f"{v}: {'/'.join(sorted(a))}" for v, a in actions.items()),
                {"dimension": dimension, "actions": {v: sorted(a) for v, a in actions.items()}},
            )


def _against(group: Group, arm: Trials, base: Trials) -> tuple[list[Comparison], list[Finding]]:
    findings: list[Finding] = []
    ours, theirs = output_tokens(arm), output_tokens(base)
    differ = ours is not None and theirs is not None and abs(math.log(ours / theirs)) > TENTH
    if differ and ours and theirs:
        findings.append(
            Finding(
                "OUTPUTS_DIFFER",
                f"{arm.name} made {ours:.1f} tokens per request, {base.name} {theirs:.1f}: outputs "
                "differ, latency not comparable (check losslessness)",
                {
                    "arm": arm.name,
                    "arm_tokens": round(ours, 2),
                    "baseline_tokens": round(theirs, 2),
                },
            )
        )
    apart = loads(arm, base)
    if apart:
        findings.append(apart)
    comparisons = []
    for metric in METRICS:
        measured = ratio(arm, base, metric)
        if measured is None:
            continue
        per_request = metric not in PER_TOKEN
        comparisons.append(
            Comparison(
                group.klass,
                arm.name,
                base.name,
                metric,
                *measured,
                not (apart or (differ and per_request)),
                arm.k,
            )
        )
    return comparisons, findings


def _verdict(
    group: Group,
    decisive: list[tuple[Trials, float, tuple[float, float] | None]],
    reasons: list[str],
    disagree: bool,
) -> Verdict:
    arm, speedup, interval = max(decisive, key=lambda item: item[1])
    losing = [other for other, value, _ in decisive if value < 1 - BAND]
    other_k = [other for other in losing if other.k not in (None, arm.k)]
    action, k = "no_difference", None
    if disagree:
        action = "inconclusive"
    elif speedup > 1 + BAND:
        action, k = ("set_k" if arm.k is not None and other_k else "keep"), arm.k
    elif speedup < 1 - BAND:
        action, k = "disable", 0
    confidence = "medium" if abs(math.log(speedup)) > UNSURE else "low"
    if interval:
        confidence = "high" if interval[0] > 1 or interval[1] < 1 else "low"
    grade: str | None = str(arm.settings.get("grade", "replayed"))
    flag = arm.settings.get("flag")
    if grade == "modelled":
        confidence = "low" if flag else "medium"
        reasons = [
            *reasons,
            *([str(flag)] if flag else []),
            "arithmetic of phase times, not two runs: run both arms under one load to prove it",
        ]
    if group.scope == INPUTS:
        grade, confidence = None, "low"
        reasons = [*reasons, "two inputs of their own, not one trace: repeat both under one load"]
    best = [f"best arm: {arm.name}"] if len(decisive) > 1 else []
    if action == "set_k":
        worse = ", ".join(f"{other.name} (k = {other.k})" for other in other_k)
        best.append(f"k = {arm.k} pays where {worse} does not")
    return Verdict(group.klass, action, k, grade, confidence, tuple(reasons + best))


def _without_baseline(
    group: Group, speculative: list[Trials]
) -> tuple[list[Comparison], Verdict | None, list[Finding]]:
    """Arms against each other; no verdict on speculation follows."""
    in_engine = group.of_role("k0")
    arms = in_engine + speculative
    comparisons: list[Comparison] = []
    findings: list[Finding] = []
    if len(arms) < 2:
        return comparisons, None, findings  # its own windows say what there is to say
    reference = arms[0] if in_engine else min(arms, key=_weakness)
    for arm in arms:
        if arm is not reference:
            own, found = _against(group, arm, reference)
            comparisons += own
            findings += found
    reasons = [
        "no target-only arm: arms are compared with each other, nothing is said of speculation"
    ]
    if in_engine:
        reasons.append(f"{reference.name} is k = 0 in a speculative engine, which is no baseline")
    reasons += [_said(comparison) for comparison in comparisons if comparison.comparable][:4]
    findings.append(Finding("NO_BASELINE", "no arm ran without speculation"))
    return (
        comparisons,
        Verdict(group.klass, "collect_baseline", None, None, "high", tuple(reasons)),
        findings,
    )


def _weakness(trials: Trials) -> float:
    tok_s = trials.mean("throughput_tok_s")
    tpot = trials.mean("tpot_ms")
    return tok_s if tok_s is not None else -tpot if tpot is not None else 0.0


def _said(comparison: Comparison) -> str:
    interval = f" ({comparison.ci[0]:.3f} to {comparison.ci[1]:.3f})" if comparison.ci else ""
    return (
        f"{comparison.arm} is {comparison.speedup:.3f}x {comparison.baseline}{interval} by "
        f"{comparison.metric}"
    )
