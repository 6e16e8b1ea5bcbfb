"""Arms of benchmarks into classes: who is the baseline, who is compared with it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specscope.readers.records import Arm, Finding

HIGHER_IS_BETTER = ("throughput_tok_s", "request_s")
T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Student's t at 97.5 % for 1 to 10 degrees of freedom; beyond, 2."""


@dataclass(slots=True)
class Trials:
    """All rows of one arm in one class."""

    name: str
    role: str
    k: int | None
    settings: Mapping[str, Any]
    rows: list[Mapping[str, float]] = field(default_factory=list)

    def mean(self, metric: str) -> float | None:
        """Mean of a metric over the rows that have it."""
        values = [row[metric] for row in self.rows if metric in row]
        return sum(values) / len(values) if values else None

    def logs(self, metric: str) -> list[float]:
        """Logarithms of a metric's positive values."""
        return [math.log(row[metric]) for row in self.rows if row.get(metric, 0) > 0]


@dataclass(slots=True)
class Group:
    """The arms of one class in one table (or in all result files together)."""

    scope: str
    klass: dict[str, Any]
    trials: dict[str, Trials] = field(default_factory=dict)
    inputs: set[str] = field(default_factory=set)

    def of_role(self, *roles: str) -> list[Trials]:
        return [trials for trials in self.trials.values() if trials.role in roles]


def grouped(arms: Sequence[Arm]) -> tuple[list[Group], list[Finding]]:
    """Classes with their arms, roles settled over each table as a whole."""
    scopes: dict[str, list[Arm]] = defaultdict(list)
    for arm in arms:
        # Result files hold one arm each, so they belong together; a table holds all of its own.
        alone = "" if "speculation_fields" in arm.settings else arm.input
        scopes[str(arm.settings.get("scope", alone))].append(arm)
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
            fresh = Trials(name, arm.role, arm.k, arm.settings)
            trials = group.trials.setdefault(name, fresh)
            trials.rows.append(arm.metrics)
            group.inputs.add(arm.input)
    return list(groups.values()), findings


def ratio(
    arm: Trials, base: Trials, metric: str
) -> tuple[float, tuple[float, float] | None] | None:
    """(speedup, 95 % interval) of an arm over its baseline; above 1 the arm is better.

    The interval needs two rows on both sides; rows are taken as independent repetitions.
    """
    ours, theirs = arm.logs(metric), base.logs(metric)
    if not ours or not theirs:
        return None
    sign = 1.0 if metric in HIGHER_IS_BETTER else -1.0
    difference = sign * (sum(ours) / len(ours) - sum(theirs) / len(theirs))
    interval = None
    if len(ours) > 1 and len(theirs) > 1:
        error = math.sqrt(_variance(ours) / len(ours) + _variance(theirs) / len(theirs))
        freedom = min(len(ours), len(theirs)) - 1
        half = (T_975[freedom - 1] if freedom <= len(T_975) else 2.0) * error
        interval = (math.exp(difference - half), math.exp(difference + half))
    return math.exp(difference), interval


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
    roles = {arm.role for arm in arms}
    if "target_only" in roles:
        blank = sorted({arm.arm for arm in arms if "inferred" in arm.settings})
        said = f"{', '.join(blank)}: no acceptance is given for it, taken as target-only"
        found = [Finding("BASELINE_INFERRED", said, {"arms": blank})] if blank else []
        return [_speculative(arm) if arm.role == "unknown" else arm for arm in arms], found
    with_fields = [arm for arm in arms if arm.role == "speculative"]
    without = [arm for arm in arms if arm.settings.get("speculation_fields") is False]
    if with_fields and without:
        names = sorted({arm.arm for arm in without})
        finding = Finding(
            "BASELINE_INFERRED",
            f"{', '.join(names)}: no speculation in the result, taken as target-only",
            {"arms": names},
        )
        lacking = {id(arm) for arm in without}
        return [replace(arm, role="target_only") if id(arm) in lacking else arm for arm in arms], [
            finding
        ]
    return [_speculative(arm) if arm.role == "unknown" else arm for arm in arms], []


def _speculative(arm: Arm) -> Arm:
    return replace(arm, role="speculative")


def _variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)
