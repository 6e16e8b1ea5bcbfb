"""Files to an analysis: read each, normalise, pool, compare, judge."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from specscope.analyze.arms import grouped
from specscope.analyze.compare import judged, varying
from specscope.analyze.diagnose import of_runs, of_totals
from specscope.analyze.findings import Findings
from specscope.analyze.input_arms import arms_of_inputs
from specscope.analyze.normalise import normalise
from specscope.analyze.pool import Pool
from specscope.analyze.pool import total as pooled_total
from specscope.analyze.result import Analysis, Comparison, InputInfo, Verdict
from specscope.analyze.scrapes import Scrapes
from specscope.analyze.times import Times
from specscope.analyze.verdict import alone
from specscope.errors import InputError
from specscope.readers.records import (
    Arm,
    DeviceSample,
    Finding,
    Format,
    Origin,
    Record,
    Scrape,
    TimeParts,
    Unparsed,
    Window,
)
from specscope.readers.registry import reader_for, readers
from specscope.readers.source import Source, open_source, walk


def analyze(paths: list[str]) -> Analysis:
    """Read files and directories. Raises InputError where nothing in them could be read."""
    collector = Collector()
    for path in walk(paths):
        try:
            source = open_source(path)
        except InputError as error:
            collector.unreadable(str(path), str(error))
            continue
        with source.stream:
            collector.read(source)
    return collector.result()


class Collector:
    """Takes records in, one input after the other, in memory that does not grow with the input."""

    def __init__(self) -> None:
        self.findings = Findings()
        self._inputs: list[InputInfo] = []
        self._pools: dict[str, Pool] = {}
        self._scrapes = Scrapes()
        self._arms: list[Arm] = []
        self._scraped: list[Arm] = []
        self._times = Times()
        self._devices: list[DeviceSample] = []

    def read(self, source: Source) -> None:
        """Read one file with the surest reader; a file that breaks off keeps what came before."""
        info = InputInfo(source.name)
        self._inputs.append(info)
        reader = reader_for(source.head)
        if reader is None:
            self._not_recognised(info)
            return
        info.format = reader.format
        try:
            for record in reader.read(source):
                self._take(info, record)
        except InputError as error:
            self.findings.add(Finding("UNREADABLE", str(error)), info.path)
        if info.records == 0 and info.unparsed_lines == 0:
            self._not_recognised(info)

    def take(self, name: str, format: str, records: Iterable[Record]) -> None:
        """Take in records that do not come from a file."""
        info = InputInfo(name, format)
        self._inputs.append(info)
        for record in records:
            self._take(info, record)

    def unreadable(self, name: str, reason: str) -> None:
        """Note a file that could not be opened."""
        self._inputs.append(InputInfo(name))
        self.findings.add(Finding("UNREADABLE", reason), name)

    def result(self) -> Analysis:
        """Everything together. Raises InputError where no input gave a record."""
        by_path = {info.path: info for info in self._inputs}
        for record in self._scrapes.records():
            owner = getattr(record, "input", None) or self._inputs[-1].path
            self._take(by_path[owner], record)
        if not any(info.records for info in self._inputs):
            raise InputError(self._nothing())
        comparisons, verdicts, judged_inputs = self._compared()
        total, used, left = pooled_total(self._pools)
        if left:
            self.findings.add(
                Finding(
                    "OVERLAPPING_INPUTS",
                    f"totals pool {len(used)} inputs and leave out {len(left)} that may count "
                    "the same "
                    "tokens",
                    {"pooled": used, "left_out": left},
                )
            )
        windows = [window for pool in self._pools.values() for window in pool.windows()]
        alone_verdicts = self._alone(judged_inputs)
        totals = None
        if total.count:
            like = Window(
                input=used[0] if len(used) == 1 else "", engine=self._engine(used), grain="total"
            )
            totals = total.window(like)
            if len(used) > 1 and not total.partial.windows and total.complete.windows:
                totals = replace(totals, label=f"{len(used)} inputs")
        for path, pool in self._pools.items():
            if pool.merged:
                self.findings.add(Finding("WINDOWS_MERGED", "windows were merged"), path)
        verdicts = verdicts + alone_verdicts or [
            Verdict({}, "no_data", None, None, "high", ("nothing here speaks of speculation",))
        ]
        return Analysis(
            self._inputs,
            windows,
            totals,
            comparisons,
            self._times.all(),
            self._devices,
            verdicts,
            self.findings.sorted(),
        )

    def _take(self, info: InputInfo, record: Record) -> None:
        match record:
            case Window():
                window, findings = normalise(record)
                for finding in findings:
                    self.findings.add(finding, info.path)
                pool = self._pools.get(info.path)
                if pool is None:
                    pool = self._pools[info.path] = Pool()
                pool.add(window)
                if window.proposed is not None and window.drafts is None:
                    self.findings.add(
                        Finding("INCOMPLETE_COUNTS", "a window without a number of drafts"),
                        info.path,
                    )
                info.engine = _engines(info.engine, window.engine)
            case Finding():
                self.findings.add(record, info.path)
                if record.code in ("LONG_LINE", "TORN_LINE"):
                    return
            case Origin():
                info.engine = _engines(info.engine, record.engine)
                info.engine_version = record.version or info.engine_version
            case Format():
                known = info.format if info.format not in (None, "text") else None
                info.format = f"{known}+{record.name}" if known else record.name
                return
            case Unparsed():
                info.unparsed_lines += 1
                return
            case Scrape():
                self._scrapes.add(record)
            case Arm():
                (self._scraped if "scope" in record.settings else self._arms).append(record)
            case TimeParts():
                self._times.add(record)
            case DeviceSample():
                self._devices.append(record)
        info.records += 1

    def _compared(self) -> tuple[list[Comparison], list[Verdict], set[str]]:
        v0 = {i.path for i in self._inputs if self.findings.has("V0_CUMULATIVE", i.path)}
        arms = arms_of_inputs(self._inputs, self._pools, self._scraped, v0)
        benched = {arm.input for arm in self._arms}
        groups, findings = grouped(self._arms + [a for a in arms if a.input not in benched])
        comparisons: list[Comparison] = []
        verdicts: list[Verdict] = []
        scopes: dict[str, list[Verdict]] = {}
        inputs: set[str] = set()
        for group in groups:
            own, verdict, found = judged(group)
            comparisons += own
            findings += found
            if verdict:
                inputs |= group.inputs
                verdicts.append(verdict)
                scopes.setdefault(group.scope, []).append(verdict)
        for scoped in scopes.values():
            findings += varying(scoped)
        runs = [
            w
            for pool in self._pools.values()
            for w in pool.windows()
            if w.grain == "run" and w.label
        ]
        explained = list(of_runs(runs))
        findings += explained
        verdicts = [
            replace(v, reasons=v.reasons + tuple(f.text for f in explained))
            if v.action == "collect_baseline"
            else v
            for v in verdicts
        ]
        if comparisons and all(c.ci is None for c in comparisons):
            findings.append(Finding("SINGLE_RUN", "one run per arm"))
        for finding in findings:
            self.findings.add(finding)
        return comparisons, verdicts, inputs

    def _alone(self, judged_inputs: set[str]) -> list[Verdict]:
        """A verdict for every input that no comparison has judged."""
        found: list[Verdict] = []
        for info in self._inputs:
            pool = self._pools.get(info.path)
            sums = pool.best() if pool else None
            total = sums.window(Window(info.path, info.engine or "unknown")) if sums else None
            if sums and total:
                # What V0 prints of throughput is not what came out: no break-even by throughput.
                v0 = self.findings.has("V0_CUMULATIVE", info.path)
                for finding in of_totals(total, sums, by_throughput=not v0):
                    self.findings.add(finding, info.path)
            if info.path in judged_inputs:
                continue
            times = [time for time in self._times.all() if time.input == info.path]
            verdict = alone(info, total, times, self.findings)
            if verdict:
                found.append(verdict)
        if any(v.action == "collect_baseline" for v in found):
            self.findings.add(Finding("NO_BASELINE", "no target-only run in the input"))
        # A file that only adds to others (an earlier scrape, a client's response) decides nothing.
        telling = [v for v in found if v.action != "no_data"]
        if telling or judged_inputs:
            found = telling
        if len(found) == 1:
            found = [
                replace(v, klass={k: x for k, x in v.klass.items() if k != "label"}) for v in found
            ]
        return found

    def _engine(self, used: list[str]) -> str:
        engines = {info.engine for info in self._inputs if info.path in used and info.engine}
        return "+".join(sorted(engines)) or "unknown"

    def _not_recognised(self, info: InputInfo) -> None:
        info.format = None
        self.findings.add(
            Finding("NOT_RECOGNISED", "no known format matches its content"), info.path
        )

    def _nothing(self) -> str:
        tried = ", ".join(dict.fromkeys(reader.format for reader in readers()))
        first = self._inputs[0] if self._inputs else None
        if first is None:
            return "no files found"
        reason = self.findings.text("UNREADABLE", first.path)
        if reason:
            return reason
        looks = (
            f"; {first.path} has {first.unparsed_lines} lines that look like speculation"
            if first.unparsed_lines
            else ""
        )
        return f"nothing could be read in {len(self._inputs)} file(s){looks}; tried {tried}"


def _engines(known: str | None, engine: str) -> str | None:
    if engine == "unknown" or (known and engine in known.split("+")):
        return known
    return "+".join(itertools.chain([known] if known else [], [engine]))
