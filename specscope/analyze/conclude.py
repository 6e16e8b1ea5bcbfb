"""From readings to the answer: compare arms, and judge all other inputs alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from specscope.analyze.arms import Group, grouped
from specscope.analyze.compare import judged, varying
from specscope.analyze.diagnose import dead_runs, of_runs, of_totals
from specscope.analyze.input_arms import arms_of_inputs, never_used
from specscope.analyze.pool import Pool
from specscope.analyze.pool import total as pooled_total
from specscope.analyze.readings import Readings
from specscope.analyze.result import Analysis, ClassVerdict, Sentence, Speedup
from specscope.analyze.verdict import alone, shown
from specscope.evaluate.verdict.verdict import Action, Confidence, Grade
from specscope.readers.records import Finding, Window
from specscope.readers.source import SEPARATOR


def conclude(readings: Readings) -> Analysis:
    """The analysis of all readings."""
    comparisons, verdicts, judged_inputs = _compared(readings)
    runs = _runs(readings)
    for input, dead in dead_runs(runs):
        readings.findings.add(dead, input)
    explained = list(of_runs(runs))
    for finding in explained:
        readings.findings.add(finding)
    verdicts += _alone(readings, judged_inputs)
    more = tuple(Sentence.of(finding) for finding in explained)
    verdicts = [
        replace(v, reasons=v.reasons + more) if v.action is Action.COLLECT_BASELINE else v
        for v in verdicts
    ]
    if not verdicts:
        reason = Sentence("nothing here speaks of speculation")
        verdicts = [ClassVerdict({}, Action.NO_DATA, Confidence.HIGH, (reason,))]
    for path, pool in readings.pools.items():
        if pool.merged:
            readings.findings.add(Finding("WINDOWS_MERGED", "windows were merged"), path)
    return Analysis(
        readings.inputs,
        [window for pool in readings.pools.values() for window in pool.windows()],
        _totals(readings),
        comparisons,
        readings.times.all(),
        readings.devices,
        verdicts,
        readings.findings.sorted(),
    )


def _totals(readings: Readings) -> Window | None:
    """The pooled window, over the inputs of the best kind."""
    total, used, left = pooled_total(readings.pools)
    if left:
        readings.findings.add(
            Finding(
                "OVERLAPPING_INPUTS",
                f"totals pool {len(used)} inputs and leave out {len(left)} that may count the same "
                "tokens",
                {"pooled": used, "left_out": left},
            )
        )
    if not total.count:
        return None
    engines = {info.engine for info in readings.inputs if info.path in used and info.engine}
    like = Window(
        input=used[0] if len(used) == 1 else "",
        engine="+".join(sorted(engines)) or "unknown",
        grain="total",
        label=f"{len(used)} inputs" if len(used) > 1 else None,
    )
    return total.window(like)


def _compared(readings: Readings) -> tuple[list[Speedup], list[ClassVerdict], set[str]]:
    """(comparisons, their verdicts, the judged inputs)."""
    v0 = {info.path for info in readings.inputs if readings.cumulative_v0(info.path)}
    for path, finding in never_used(readings.inputs, readings.pools):
        readings.findings.add(finding, path)
    whole, silent = arms_of_inputs(readings.inputs, readings.pools, readings.scraped, v0)
    benched = {arm.input for arm in readings.arms}
    groups, findings = grouped(readings.arms + [arm for arm in whole if arm.input not in benched])
    findings += silent
    comparisons: list[Speedup] = []
    verdicts: list[ClassVerdict] = []
    scopes: dict[str, list[ClassVerdict]] = {}
    inputs: set[str] = set()
    for group in _told_apart(groups):
        own, verdict, found = judged(group)
        comparisons += own
        findings += found
        if verdict:
            inputs |= group.inputs
            verdict = _with_break_even(verdict, group, readings)
            verdicts.append(verdict)
            scopes.setdefault(group.scope, []).append(verdict)
    for scoped in scopes.values():
        findings += varying(scoped)
    if comparisons and all(comparison.ci is None for comparison in comparisons):
        findings.append(Finding("SINGLE_RUN", "one run per arm"))
    for finding in findings:
        readings.findings.add(finding)
    return comparisons, verdicts, inputs


def _runs(readings: Readings) -> list[Window]:
    windows = [window for pool in readings.pools.values() for window in pool.windows()]
    return [window for window in windows if window.grain == "run" and window.label]


def _alone(readings: Readings, judged_inputs: set[str]) -> list[ClassVerdict]:
    """A verdict for every input without a comparison."""
    found: list[ClassVerdict] = []
    times = readings.times.all()
    # Blocks of one document belong together: raw lines beside a table that is judged add to it.
    started = {_file(info.path) for info in readings.inputs if info.speculates}
    judged_files = {_file(path) for path in judged_inputs if SEPARATOR in path}
    for info in readings.inputs:
        pool = readings.pools.get(info.path)
        sums = pool.best() if pool else None
        total = sums.window(Window(info.path, info.engine or "unknown")) if sums else None
        if sums and total:
            by_throughput = not readings.cumulative_v0(info.path)
            for finding in of_totals(total, sums, by_throughput):
                readings.findings.add(finding, info.path)
        if info.path not in judged_inputs and _file(info.path) not in judged_files:
            own = [time for time in times if time.input == info.path]
            arms = [arm for arm in readings.arms if arm.input == info.path]
            verdict = alone(info, total, _run_lines(pool), own, arms, readings.findings,
                            _file(info.path) in started)  # fmt: skip
            found += [verdict] if verdict else []
    # A file that only adds to others (an earlier scrape, a client's response) decides nothing.
    telling = [verdict for verdict in found if verdict.action is not Action.NO_DATA]
    if telling or judged_inputs:
        found = telling
    if any(verdict.action is Action.COLLECT_BASELINE for verdict in found):
        readings.findings.add(Finding("NO_BASELINE", "no target-only run in the input"))
    if len(found) == 1:
        found = [replace(found[0], klass=_without_label(found[0]))]
    return found


def _with_break_even(verdict: ClassVerdict, group: Group, readings: Readings) -> ClassVerdict:
    """Add the break-even time of a baseline from the arms' phase times, if no baseline ran."""
    found = [readings.findings.first("BREAK_EVEN", input) for input in sorted(group.inputs)]
    even = tuple(Sentence.of(finding) for finding in found if finding)
    if verdict.action is not Action.COLLECT_BASELINE or not even:
        return verdict
    return replace(verdict, grade=Grade.MODELLED, reasons=verdict.reasons + even)


def _told_apart(groups: list[Group]) -> list[Group]:
    """Name equal classes of several tables after the line above each table."""
    seen = Counter(str(group.klass) for group in groups)
    for group in groups:
        part = group.scope.partition(SEPARATOR)[2]
        if seen[str(group.klass)] > 1 and part:
            group.klass = {**group.klass, "table": part}
    return groups


def _file(path: str) -> str:
    return path.partition(SEPARATOR)[0]


def _run_lines(pool: Pool | None) -> list[str]:
    """A line for each run, if an input holds several without a common figure."""
    runs = pool.runs() if pool else []
    return [f"{label}: {shown(sums.window(Window('', 'unknown')))}" for label, sums in runs]


def _without_label(verdict: ClassVerdict) -> dict[str, object]:
    return {name: value for name, value in verdict.klass.items() if name != "label"}
