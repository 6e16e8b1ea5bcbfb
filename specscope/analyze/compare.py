"""Arms against their baseline: comparisons, and the verdict of each class."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from specscope.analyze.arms import Group, Trials, output_tokens, ratio
from specscope.analyze.differences import BAND, adds, loads, settings, tax, unlike_arms
from specscope.analyze.result import ClassVerdict, Sentence, Speedup
from specscope.evaluate.verdict.verdict import Action, Confidence, Grade
from specscope.readers.records import Finding
from specscope.readers.tables.attributes import unlike
from specscope.readers.tables.headers import PEAK
from specscope.readers.tables.names import ON, named

INPUTS = "inputs"
"""The scope of arms that are whole inputs, which nobody matched."""

TENTH = math.log1p(0.10)
"""Outputs that differ by more than 10 % are not the same outputs."""

METRICS = ("throughput_tok_s", "tpot_ms", "request_s", "latency_ms", PEAK)
PER_TOKEN = ("throughput_tok_s", "tpot_ms")
PRINTED = "printed_speedup"

NOISE = math.log1p(0.10)
"""Lone runs of one machine differ by so much without a cause."""


@dataclass(frozen=True, slots=True)
class Result:
    """One speculating arm against the target-only run of its class."""

    arm: Trials
    speedup: float
    interval: tuple[float, float] | None
    noisy: bool
    """The spread that the input gives for the runs is as large as their difference."""

    @property
    def sign(self) -> int:
        """1 for a proven gain, -1 for a proven loss, 0 otherwise."""
        if self.interval:
            low, high = self.interval
            return int(low > 1 and self.speedup > 1 + BAND) - int(
                high < 1 and self.speedup < 1 - BAND
            )
        if self.noisy or abs(math.log(self.speedup)) <= NOISE:
            return 0
        return 1 if self.speedup > 1 else -1

    @property
    def even(self) -> bool:
        """Whether the interval excludes every relevant difference."""
        return (
            self.interval is not None
            and self.interval[0] > 1 - BAND
            and self.interval[1] < 1 + BAND
        )


def judged(group: Group) -> tuple[list[Speedup], ClassVerdict | None, list[Finding]]:
    """All comparisons of one class, and its verdict."""
    baselines = group.of_role("target_only")
    speculative = group.of_role("speculative")
    if not baselines and any(arm.mean(PRINTED) for arm in speculative):
        return _as_printed(group, speculative)
    if not baselines:
        return _without_baseline(group, speculative)
    comparisons: list[Speedup] = []
    findings: list[Finding] = []
    results: list[Result] = []
    apart: list[Sentence] = []
    disagree = False
    bases = _told_apart(baselines, findings)
    for arm in group.of_role("speculative", "k0", "unknown"):
        base = _nearest(arm, bases)
        own, found = _against(group, arm, base)
        comparisons += own
        findings += found
        if arm.role == "k0":
            findings += tax(group.klass, own)
        if arm.role != "speculative":
            continue
        usable = [c for c in own if c.comparable]
        apart += [Sentence.of(f) for f in found if own and not usable]
        if not usable:
            continue
        first = usable[0]
        added = adds(arm, base)
        if added:
            findings.append(added)
            if any(not adds(other, base) for other in speculative):
                continue  # what it adds besides may be what gains
        noisy = _is_noisy(arm, base, first.metric) or _is_beyond_tokens(arm, first.speedup)
        results.append(Result(arm, first.speedup, first.ci, noisy))
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
        if len(bases) > 1 and _bases_disagree(arm, bases, first.metric):
            disagree = True
    if not results:
        verdict = None
        if apart:
            reasons = tuple(dict.fromkeys(apart))
            verdict = ClassVerdict(group.klass, Action.NOT_COMPARABLE, Confidence.HIGH, reasons)
        return comparisons, verdict, findings
    findings += settings([(r.arm, r.speedup, r.interval) for r in results])
    best = max(results, key=lambda result: result.speedup)
    counted = [c for c in comparisons if c.comparable and c.metric == _first_metric(comparisons, c)]
    # A line has room for one reason: that of the arm which the verdict names.
    why = [_said(c) for c in sorted(counted, key=lambda c: c.arm != best.arm.name)]
    why += [Sentence.of(f) for f in findings if f.code in _REASONS]
    weak = [f for f in findings if f.code in _WEAKENS] or any(c.metric == PEAK for c in counted)
    return comparisons, _verdict(group, results, best, why, disagree, bool(weak)), findings


_REASONS = (
    "CONFIG_DIFFERS",
    "OUTPUTS_DIFFER",
    "ARMS_DIFFER",
    "SEVERAL_BASELINES",
    "METRICS_DISAGREE",
)
_WEAKENS = ("CONFIG_DIFFERS", "ARMS_DIFFER", "SEVERAL_BASELINES", "OUTPUTS_DIFFER")


def _first_metric(comparisons: list[Speedup], one: Speedup) -> str:
    return next(c.metric for c in comparisons if c.arm == one.arm and c.comparable)


def _told_apart(baselines: list[Trials], findings: list[Finding]) -> list[Trials]:
    """The target-only runs of a class; stated ones take precedence over inferred ones."""
    stated = [base for base in baselines if base.basis == "stated"] or baselines
    if len(stated) > 1:
        names = ", ".join(base.name for base in stated)
        findings.append(
            Finding("SEVERAL_BASELINES", f"several target-only runs of one class: {names}", {})
        )
    return stated


def _nearest(arm: Trials, bases: list[Trials]) -> Trials:
    """The target-only run with the most similar name, else the fastest."""
    ours = set(re.findall(r"\w+", arm.name.lower()))

    def rank(base: Trials) -> tuple[int, float]:
        shared = len(ours & set(re.findall(r"\w+", base.name.lower())))
        return shared, base.mean("throughput_tok_s") or -(base.mean("tpot_ms") or 0.0)

    return max(bases, key=rank)


def _bases_disagree(arm: Trials, bases: list[Trials], metric: str) -> bool:
    ratios = [measured[0] for base in bases if (measured := ratio(arm, base, metric))]
    return (
        min(ratios) < 1 + BAND and max(ratios) > 1 - BAND and max(ratios) / min(ratios) > 1 + BAND
    )


def _is_noisy(arm: Trials, base: Trials, metric: str) -> bool:
    ours, theirs = arm.mean(metric), base.mean(metric)
    spread = arm.spreads.get(metric, 0.0) + base.spreads.get(metric, 0.0)
    return ours is not None and theirs is not None and 0 < abs(ours - theirs) <= spread


def _is_beyond_tokens(arm: Trials, speedup: float) -> bool:
    """Whether an arm's speedup exceeds its tokens per round, which is impossible because a round
    costs at least one step."""
    tokens = arm.mean("tokens_per_round")
    return tokens is not None and math.log(speedup / tokens) > NOISE


def _as_printed(
    group: Group, speculative: list[Trials]
) -> tuple[list[Speedup], ClassVerdict | None, list[Finding]]:
    """Speedups in the table over a baseline that the table does not show."""
    comparisons = []
    results = []
    for arm in speculative:
        speedup = arm.mean(PRINTED)
        if speedup:
            comparisons.append(
                Speedup(
                    group.klass,
                    arm.name,
                    "baseline (as printed)",
                    PRINTED,
                    speedup,
                    None,
                    True,
                    arm.k,
                )
            )
            results.append(Result(arm, speedup, None, False))
    finding = Finding(
        "SPEEDUP_AS_PRINTED", "speedups are the table's own: their baseline is not in it"
    )
    reasons = [_said(c) for c in comparisons] + [Sentence.of(finding)]
    best = max(results, key=lambda result: result.speedup)
    return comparisons, _verdict(group, results, best, reasons, False, True), [finding]


def varying(verdicts: list[ClassVerdict]) -> Iterator[Finding]:
    """Findings on verdicts that depend on a dimension of the class."""
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


def _against(group: Group, arm: Trials, base: Trials) -> tuple[list[Speedup], list[Finding]]:
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
    found_unlike = unlike_arms(arm, base)
    findings += [finding for finding in (apart, found_unlike) if finding]
    if found_unlike and found_unlike.evidence["both"]:
        apart = found_unlike
    comparisons: list[Speedup] = []
    for metric in METRICS:
        measured = ratio(arm, base, metric)
        if measured is None or (metric == PEAK and comparisons):
            continue
        per_request = metric not in PER_TOKEN
        comparisons.append(
            Speedup(
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
    results: list[Result],
    best: Result,
    reasons: list[Sentence],
    disagree: bool,
    weak: bool,
) -> ClassVerdict:
    arm = best.arm
    losing = [r for r in results if r.speedup < 1 - BAND]
    other_k = [r.arm for r in losing if r.arm.k not in (None, arm.k)]
    # One arm within the noise of a lone run may be even; where every arm loses and one of them
    # with 95 % confidence, nothing here gains.
    all_lose = len(losing) == len(results) > 1 and any(r.sign < 0 for r in results)
    action, k = Action.INCONCLUSIVE, None
    if disagree:
        pass
    elif best.sign > 0:
        action, k = (Action.SET_K if arm.k is not None and other_k else Action.KEEP), arm.k
    elif best.sign < 0 or (all_lose and not best.interval):
        action, k = Action.DISABLE, 0
    elif all(result.even for result in results):
        action = Action.NO_DIFFERENCE
    assumed = any(t.basis != "stated" for t in group.trials.values() if t.role != "unknown")
    confidence = Confidence.LOW
    if best.interval and not weak and action is not Action.INCONCLUSIVE:
        confidence = Confidence.MEDIUM if assumed else Confidence.HIGH
    grade = Grade(arm.settings.get("grade", Grade.REPLAYED))
    told = []
    if grade is Grade.MODELLED:
        flag: Finding | None = arm.settings.get("flag")
        confidence = Confidence.LOW if flag else Confidence.MEDIUM
        reasons = [*reasons, Sentence.of(flag)] if flag else reasons
        told.append(
            "arithmetic of phase times, not two runs: run both arms under one load to prove it"
        )
    if group.scope == INPUTS:
        grade, confidence = Grade.NONE, Confidence.LOW
        told.append("two inputs of their own, not one trace: repeat both under one load")
    if len(results) > 1:
        told.append(f"best arm: {arm.name}")
    if action is Action.INCONCLUSIVE and not disagree:
        cause = (
            "the runs spread as widely as they differ"
            if best.interval or best.noisy
            else ("one run an arm does not show a difference within 10 %")
        )
        told.append(f"{cause}: repeat each arm")
    if action is Action.SET_K:
        worse = ", ".join(f"{other.name} (k = {other.k})" for other in other_k)
        told.append(f"k = {arm.k} pays where {worse} does not")
    why = (*reasons, *(Sentence(text) for text in told))
    return ClassVerdict(group.klass, action, confidence, why, k, grade)


def _without_baseline(
    group: Group, speculative: list[Trials]
) -> tuple[list[Speedup], ClassVerdict | None, list[Finding]]:
    """Compare arms with each other, without a verdict on speculation."""
    in_engine = group.of_role("k0")
    # Arms are told apart by drafter or length; loads and outputs under one name are no arms.
    arms = in_engine + [t for t in speculative if t.k is not None or named(t.name).state == ON]
    comparisons: list[Speedup] = []
    findings: list[Finding] = []
    if len(arms) < 2:
        return comparisons, None, findings  # its own windows say what there is to say
    reference = arms[0] if in_engine else min(arms, key=_weakness)
    for arm in arms:
        if arm is not reference and not unlike(arm.name, reference.name):
            own, found = _against(group, arm, reference)
            comparisons += own
            findings += found
    if not comparisons:
        return comparisons, None, findings  # nothing but acceptance, which its windows say
    reasons = [
        Sentence(
            "no target-only arm: arms are compared with each other, nothing is said of speculation"
        )
    ]
    if in_engine:
        text = f"{reference.name} is k = 0 in a speculative engine, which is no baseline"
        reasons.append(Sentence(text))
    reasons += [_said(comparison) for comparison in comparisons if comparison.comparable][:4]
    findings.append(Finding("NO_BASELINE", "no arm ran without speculation"))
    return (
        comparisons,
        ClassVerdict(group.klass, Action.COLLECT_BASELINE, Confidence.HIGH, tuple(reasons)),
        findings,
    )


def _weakness(trials: Trials) -> float:
    tok_s = trials.mean("throughput_tok_s")
    tpot = trials.mean("tpot_ms")
    return tok_s if tok_s is not None else -tpot if tpot is not None else 0.0


def _said(comparison: Speedup) -> Sentence:
    interval = f" ({comparison.ci[0]:.3f} to {comparison.ci[1]:.3f})" if comparison.ci else ""
    return Sentence(
        f"{comparison.arm} is {comparison.speedup:.3f}x {comparison.baseline}{interval} by "
        f"{comparison.metric}"
    )
