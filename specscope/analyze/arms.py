"""Group arms of benchmarks into classes, with a baseline and compared arms."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

from specscope.readers.records import Arm, Finding
from specscope.readers.source import SEPARATOR
from specscope.readers.tables.headers import PEAK

BLOCKS = "blocks"
"""The scope of tables that hold one arm each."""

HIGHER_IS_BETTER = ("throughput_tok_s", "request_s", PEAK, "printed_speedup")


@dataclass(slots=True)
class Trials:
    """All rows of one arm in one class."""

    name: str
    role: str
    k: int | None
    settings: Mapping[str, Any]
    rows: list[Mapping[str, float]] = field(default_factory=list)
    basis: str = "stated"
    spreads: Mapping[str, float] = field(default_factory=dict)

    def mean(self, metric: str) -> float | None:
        """Mean of a metric over the rows that have it."""
        values = [row[metric] for row in self.rows if metric in row]
        return sum(values) / len(values) if values else None

    def values(self, metric: str) -> list[float]:
        """A metric's positive values, one per run."""
        return [row[metric] for row in self.rows if row.get(metric, 0) > 0]


@dataclass(slots=True)
class Group:
    """The arms of one class in one table, or in all result files."""

    scope: str
    klass: dict[str, Any]
    trials: dict[str, Trials] = field(default_factory=dict)
    inputs: set[str] = field(default_factory=set)

    def of_role(self, *roles: str) -> list[Trials]:
        return [trials for trials in self.trials.values() if trials.role in roles]


def grouped(arms: Sequence[Arm]) -> tuple[list[Group], list[Finding]]:
    """Classes with their arms; the roles are decided over each whole table."""
    scopes: dict[str, list[Arm]] = defaultdict(list)
    for arm in arms:
        # Result files hold one arm each, so they belong together; a table holds all of its own.
        alone = "" if "speculation_fields" in arm.settings else arm.input
        scopes[str(arm.settings.get("scope", alone))].append(arm)
    _join_baselines(scopes)
    groups: dict[tuple[object, ...], Group] = {}
    findings: list[Finding] = []
    for scope, members in scopes.items():
        settled, found = _roles(members)
        findings += found
        speculative = {(scope, arm.arm) for arm in settled if arm.role == "speculative"}
        lengths: dict[str, set[int | None]] = defaultdict(set)
        for arm in settled:
            if arm.role == "speculative":
                lengths[arm.arm].add(arm.k)
        for arm in settled:
            klass = dict(sorted(arm.conditions.items()))
            key = (scope, *klass.items())
            group = groups.setdefault(key, Group(scope, klass))
            name = arm.arm
            if arm.role == "target_only" and (scope, name) in speculative:
                name += " (no speculation)"  # one file may hold both kinds of runs under one name
            if arm.role == "speculative" and len(lengths[name]) > 1 and arm.k is not None:
                name += f" k={arm.k}"  # runs of one drafter with other lengths are other arms
            fresh = Trials(name, arm.role, arm.k, arm.settings, [], arm.basis, arm.spreads)
            trials = group.trials.setdefault(name, fresh)
            trials.rows.append(arm.metrics)
            group.inputs.add(arm.input)
    return list(groups.values()), findings


def _join_baselines(scopes: dict[str, list[Arm]]) -> None:
    """Move target-only runs from their own table to the document's only other table, if that one
    has none."""
    bases = scopes.get(BLOCKS, [])
    if not bases or any(arm.role != "target_only" for arm in bases):
        return
    files = {arm.input.partition(SEPARATOR)[0] for arm in bases}
    lacking = [
        members
        for scope, members in scopes.items()
        if scope.partition(SEPARATOR)[0] in files
        and {arm.role for arm in members} == {"speculative"}
    ]
    if len(lacking) == 1:
        lacking[0].extend(scopes.pop(BLOCKS))


def ratio(
    arm: Trials, base: Trials, metric: str
) -> tuple[float, tuple[float, float] | None] | None:
    """(speedup, 95 % interval) of an arm over its baseline; above 1 the arm is better.

    The speedup is the ratio of the means. Its interval needs two runs on each side, which count as
    independent. It is Welch's interval of the logarithm, by the delta method.
    """
    ours, theirs = arm.values(metric), base.values(metric)
    if not ours or not theirs:
        return None
    sign = 1.0 if metric in HIGHER_IS_BETTER else -1.0
    difference = sign * math.log(_mean(ours) / _mean(theirs))
    if len(ours) < 2 or len(theirs) < 2:
        return math.exp(difference), None
    errors = [_variance(values) / len(values) / _mean(values) ** 2 for values in (ours, theirs)]
    total = sum(errors)
    if total <= 0:
        return math.exp(difference), (math.exp(difference), math.exp(difference))
    spread = sum(e * e / (len(v) - 1) for e, v in zip(errors, (ours, theirs), strict=True))
    half = t_quantile(0.975, total * total / spread) * math.sqrt(total)
    return math.exp(difference), (math.exp(difference - half), math.exp(difference + half))


def t_quantile(p: float, freedom: float) -> float:
    """Student's t at probability p above 0.5, for any number of degrees of freedom from 1 on.

    Within 1.1 % of the true value from 1.5 degrees on and exact at 1 and 2; between 1 and 1.5 it
    is up to 9 % too wide, never too narrow.
    Source: G. W. Hill, Algorithm 396, Communications of the ACM 13 (1970).
    """
    freedom = max(freedom, 1.0)
    tail = 2 * (1 - p)
    if freedom < 1.001:
        return 1 / math.tan(tail * math.pi / 2)
    if abs(freedom - 2) < 1e-3:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    a = 1 / (freedom - 0.5)
    b = 48 / (a * a)
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * freedom
    y = (d * tail) ** (2 / freedom)
    if y > a + 0.05:
        x = NormalDist().inv_cdf(tail / 2)
        y = x * x
        if freedom < 5:
            c += 0.3 * (freedom - 4.5) * (x + 0.6)
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = (
            (
                1 / (((freedom + 6) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2) * 3)
                + 0.5 / (freedom + 4)
            )
            * y
            - 1
        ) * (freedom + 1) / (freedom + 2) + 1 / y
    return math.sqrt(freedom * y)


def output_tokens(trials: Trials) -> float | None:
    """Output tokens per request: counted, or (latency - first token) / time per token."""
    counted = trials.mean("output_tokens")
    if counted:
        return counted
    latency, first, each = (trials.mean(m) for m in ("latency_ms", "ttft_ms", "tpot_ms"))
    if latency is not None and first is not None and each and latency > first:
        return (latency - first) / each
    return None


def _roles(arms: list[Arm]) -> tuple[list[Arm], list[Finding]]:
    """Decide roles over one table, or over all result files.

    A plain "baseline" is target-only if other arms are known to speculate. An arm without
    information stays unknown: it is compared and decides nothing.
    """
    speculates = any(arm.role in ("speculative", "k0") for arm in arms)
    stated = any(arm.role == "target_only" and arm.basis == "stated" for arm in arms)
    findings: list[Finding] = []
    settled = []
    for arm in arms:
        if arm.role == "target_only" and arm.basis == "word" and not (speculates or stated):
            arm = replace(arm, role="unknown")
        settled.append(arm)
    for code, basis, said in _ASSUMED:
        names = sorted({arm.arm for arm in settled if arm.basis == basis and arm.role != "unknown"})
        if names:
            findings.append(Finding(code, f"{', '.join(names[:6])}: {said}", {"arms": names}))
    unknown = sorted({arm.arm for arm in settled if arm.role == "unknown"})
    if unknown and len(settled) > 1:
        findings.append(
            Finding(
                "ARMS_NOT_RECOGNISED",
                f"{', '.join(unknown[:6])}: nothing says whether speculation ran",
                {"arms": unknown},
            )
        )
    return settled, findings


_ASSUMED = (
    (
        "BASELINE_INFERRED",
        "inferred",
        "taken for target-only, because no acceptance is given for it",
    ),
    ("ARM_ASSUMED", "assumed", "taken to speculate, because it stands beside a run without"),
)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)
