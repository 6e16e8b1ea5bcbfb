"""From evidence to the answer: compare what can be compared, judge the rest alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from specscope.analyze.arms import Group, grouped
from specscope.analyze.compare import judged, varying
from specscope.analyze.diagnose import dead_runs, of_runs, of_totals
from specscope.analyze.evidence import Evidence
from specscope.analyze.input_arms import arms_of_inputs, never_used
from specscope.analyze.pool import Pool
from specscope.analyze.pool import total as pooled_total
from specscope.analyze.result import Analysis, Comparison, Reason, Verdict
from specscope.analyze.verdict import alone, shown
from specscope.evaluate.verdict.verdict import Action, Confidence, Grade
from specscope.readers.records import Finding, Window
from specscope.readers.source import SEPARATOR


def conclude(evidence: Evidence) -> Analysis:
    """The analysis of everything that was read."""
    comparisons, verdicts, judged_inputs = _compared(evidence)
    runs = _runs(evidence)
    for input, dead in dead_runs(runs):
        evidence.findings.add(dead, input)
    explained = list(of_runs(runs))
    for finding in explained:
        evidence.findings.add(finding)
    verdicts += _alone(evidence, judged_inputs)
    more = tuple(Reason.of(finding) for finding in explained)
    verdicts = [
        replace(v, reasons=v.reasons + more) if v.action is Action.COLLECT_BASELINE else v
        for v in verdicts
    ]
    if not verdicts:
        reason = Reason("nothing here speaks of speculation")
        verdicts = [Verdict({}, Action.NO_DATA, Confidence.HIGH, (reason,))]
    for path, pool in evidence.pools.items():
        if pool.merged:
            evidence.findings.add(Finding("WINDOWS_MERGED", "windows were merged"), path)
    return Analysis(
        evidence.inputs,
        [window for pool in evidence.pools.values() for window in pool.windows()],
        _totals(evidence),
        comparisons,
        evidence.times.all(),
        evidence.devices,
        verdicts,
        evidence.findings.sorted(),
    )


def _totals(evidence: Evidence) -> Window | None:
    """The pooled window, over the inputs of the best kind."""
    total, used, left = pooled_total(evidence.pools)
    if left:
        evidence.findings.add(
            Finding(
                "OVERLAPPING_INPUTS",
                f"totals pool {len(used)} inputs and leave out {len(left)} that may count the same "
                "tokens",
                {"pooled": used, "left_out": left},
            )
        )
    if not total.count:
        return None
    engines = {info.engine for info in evidence.inputs if info.path in used and info.engine}
    like = Window(
        input=used[0] if len(used) == 1 else "",
        engine="+".join(sorted(engines)) or "unknown",
        grain="total",
        label=f"{len(used)} inputs" if len(used) > 1 else None,
    )
    return total.window(like)


def _compared(evidence: Evidence) -> tuple[list[Comparison], list[Verdict], set[str]]:
    """(comparisons, their verdicts, the inputs that these have judged)."""
    v0 = {info.path for info in evidence.inputs if evidence.cumulative_v0(info.path)}
    for path, finding in never_used(evidence.inputs, evidence.pools):
        evidence.findings.add(finding, path)
    whole, silent = arms_of_inputs(evidence.inputs, evidence.pools, evidence.scraped, v0)
    benched = {arm.input for arm in evidence.arms}
    groups, findings = grouped(evidence.arms + [arm for arm in whole if arm.input not in benched])
    findings += silent
    comparisons: list[Comparison] = []
    verdicts: list[Verdict] = []
    scopes: dict[str, list[Verdict]] = {}
    inputs: set[str] = set()
    for group in _told_apart(groups):
        own, verdict, found = judged(group)
        comparisons += own
        findings += found
        if verdict:
            inputs |= group.inputs
            verdict = _with_break_even(verdict, group, evidence)
            verdicts.append(verdict)
            scopes.setdefault(group.scope, []).append(verdict)
    for scoped in scopes.values():
        findings += varying(scoped)
    if comparisons and all(comparison.ci is None for comparison in comparisons):
        findings.append(Finding("SINGLE_RUN", "one run per arm"))
    for finding in findings:
        evidence.findings.add(finding)
    return comparisons, verdicts, inputs


def _runs(evidence: Evidence) -> list[Window]:
    windows = [window for pool in evidence.pools.values() for window in pool.windows()]
    return [window for window in windows if window.grain == "run" and window.label]


def _alone(evidence: Evidence, judged_inputs: set[str]) -> list[Verdict]:
    """A verdict for every input that no comparison has judged."""
    found: list[Verdict] = []
    times = evidence.times.all()
    # Blocks of one document belong together: raw lines beside a table that is judged add to it.
    started = {_file(info.path) for info in evidence.inputs if info.speculates}
    judged_files = {_file(path) for path in judged_inputs if SEPARATOR in path}
    for info in evidence.inputs:
        pool = evidence.pools.get(info.path)
        sums = pool.best() if pool else None
        total = sums.window(Window(info.path, info.engine or "unknown")) if sums else None
        if sums and total:
            by_throughput = not evidence.cumulative_v0(info.path)
            for finding in of_totals(total, sums, by_throughput):
                evidence.findings.add(finding, info.path)
        if info.path not in judged_inputs and _file(info.path) not in judged_files:
            own = [time for time in times if time.input == info.path]
            arms = [arm for arm in evidence.arms if arm.input == info.path]
            verdict = alone(info, total, _run_lines(pool), own, arms, evidence.findings,
                            _file(info.path) in started)  # fmt: skip
            found += [verdict] if verdict else []
    # A file that only adds to others (an earlier scrape, a client's response) decides nothing.
    telling = [verdict for verdict in found if verdict.action is not Action.NO_DATA]
    if telling or judged_inputs:
        found = telling
    if any(verdict.action is Action.COLLECT_BASELINE for verdict in found):
        evidence.findings.add(Finding("NO_BASELINE", "no target-only run in the input"))
    if len(found) == 1:
        found = [replace(found[0], klass=_without_label(found[0]))]
    return found


def _with_break_even(verdict: Verdict, group: Group, evidence: Evidence) -> Verdict:
    """Phase times of arms say what a baseline would have to cost, where none was run."""
    found = [evidence.findings.first("BREAK_EVEN", input) for input in sorted(group.inputs)]
    even = tuple(Reason.of(finding) for finding in found if finding)
    if verdict.action is not Action.COLLECT_BASELINE or not even:
        return verdict
    return replace(verdict, grade=Grade.MODELLED, reasons=verdict.reasons + even)


def _told_apart(groups: list[Group]) -> list[Group]:
    """Classes of several tables that nothing tells apart are named after the line above each."""
    seen = Counter(str(group.klass) for group in groups)
    for group in groups:
        part = group.scope.partition(SEPARATOR)[2]
        if seen[str(group.klass)] > 1 and part:
            group.klass = {**group.klass, "table": part}
    return groups


def _file(path: str) -> str:
    return path.partition(SEPARATOR)[0]


def _run_lines(pool: Pool | None) -> list[str]:
    """A line for each run of an input that holds several, which have no figure in common."""
    runs = pool.runs() if pool else []
    return [f"{label}: {shown(sums.window(Window('', 'unknown')))}" for label, sums in runs]


def _without_label(verdict: Verdict) -> dict[str, object]:
    return {name: value for name, value in verdict.klass.items() if name != "label"}
