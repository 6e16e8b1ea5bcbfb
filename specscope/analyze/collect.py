"""Read files into records, normalise and pool them, in constant memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from specscope.analyze.conclude import conclude
from specscope.analyze.normalise import normalise
from specscope.analyze.pool import Pool
from specscope.analyze.readings import Readings
from specscope.analyze.result import Analysis, InputInfo
from specscope.analyze.scrapes import Scrapes
from specscope.errors import InputError
from specscope.readers.document import Part, is_document, part_records, parts, says_arm
from specscope.readers.nearest import nearest
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
from specscope.readers.registry import Reader, is_text, reader_for, shape
from specscope.readers.source import Source, open_source, walk
from specscope.readers.tables.headers import SPEEDS

_NOTHING_READ = ("LONG_LINE", "TORN_LINE")
"""Findings that a file without a single record may give."""


def analyze(paths: list[str]) -> Analysis:
    """Read files and directories. Raises InputError if none of them could be read."""
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


_OF_DOCUMENTS = ("text", "bench-csv")
"""Readers whose files may be documents with more in them."""


class Collector:
    """Collect inputs one after the other."""

    def __init__(self) -> None:
        self._readings = Readings()
        self._scrapes = Scrapes()

    def read(self, source: Source) -> None:
        """Read one file with the best reader; a truncated file keeps its complete records."""
        reader = reader_for(source.head)
        if (reader is None or reader.format in _OF_DOCUMENTS) and is_document(source.head):
            found = parts(source)
            if found is not None and self._read_parts(source.name, found):
                return
        self._read_whole(source, reader)

    def _read_parts(self, path: str, found: list[Part]) -> bool:
        """Read the parts of a document; False if no part is known."""
        read = [(part, *part_records(part)) for part in found]
        known = [one for one in read if _says(one[2])]
        if len(known) == 1 and not says_arm(known[0][0].label):
            # A document with one block in it is that block.
            part = replace(known[0][0], source=replace(known[0][0].source, name=path))
            known = [(part, *part_records(part))]
        for part, format, records in known:
            self.take(part.source.name, format, records)
        return bool(known)

    def _read_whole(self, source: Source, reader: Reader | None) -> None:
        info = InputInfo(source.name)
        self._readings.inputs.append(info)
        if reader is None:
            self._not_recognised(info, source)
            return
        info.format = reader.format
        try:
            for record in reader.read(source):
                self._take(info, record)
        except InputError as error:
            self._readings.findings.add(Finding("UNREADABLE", str(error)), info.path)
        if info.records == 0 and info.unparsed_lines == 0:
            self._not_recognised(info, source)

    def take(self, name: str, format: str, records: Iterable[Record]) -> None:
        """Add records that do not come from a file."""
        info = InputInfo(name, format)
        self._readings.inputs.append(info)
        for record in records:
            self._take(info, record)

    def unreadable(self, name: str, reason: str) -> None:
        """Note a file that could not be opened."""
        self._readings.inputs.append(InputInfo(name))
        self._readings.findings.add(Finding("UNREADABLE", reason), name)

    def result(self) -> Analysis:
        """The readings of all inputs. Raises InputError if no input gave a record."""
        inputs = self._readings.inputs
        by_path = {info.path: info for info in inputs}
        for record in self._scrapes.records():
            owner = getattr(record, "input", None) or inputs[-1].path
            self._take(by_path[owner], record)
        if not any(info.records for info in inputs):
            raise InputError(self._nothing())
        return conclude(self._readings)

    def _take(self, info: InputInfo, record: Record) -> None:
        match record:
            case Window():
                window, findings = normalise(record)
                for finding in findings:
                    self._readings.findings.add(finding, info.path)
                pool = self._readings.pools.get(info.path)
                if pool is None:
                    pool = self._readings.pools[info.path] = Pool()
                pool.add(window)
                if window.proposed is not None and window.drafts is None:
                    self._readings.findings.add(
                        Finding("INCOMPLETE_COUNTS", "a window without a number of drafts"),
                        info.path,
                    )
                info.engine = _engines(info.engine, window.engine)
            case Finding():
                self._readings.findings.add(record, info.path)
                if record.code in _NOTHING_READ:
                    return
            case Origin():
                info.engine = _engines(info.engine, record.engine)
                info.engine_version = record.version or info.engine_version
                info.method, info.k = record.method or info.method, record.k or info.k
                if record.speculates is not None:
                    info.speculates = bool(info.speculates) or record.speculates
                if record.engine == "unknown":
                    return
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
                info.has_speed |= bool(SPEEDS & record.metrics.keys())
                (
                    self._readings.scraped
                    if record.settings.get("scope") == "inputs"
                    else self._readings.arms
                ).append(record)
            case TimeParts():
                self._readings.times.add(record)
            case DeviceSample():
                self._readings.devices.append(record)
        info.records += 1

    def _not_recognised(self, info: InputInfo, source: Source) -> None:
        info.format = None
        text = f"no known format: it looks like {shape(source.head)}"
        near = nearest(source.head) if is_text(source.head) else ()
        if near:
            named = " and ".join(f"{known.name} (`{known.mark}`)" for known in near)
            text += f"; the nearest formats are {named}"
        evidence = {"nearest": [known.name for known in near]}
        self._readings.findings.add(Finding("NOT_RECOGNISED", text, evidence), info.path)

    def _nothing(self) -> str:
        inputs, findings = self._readings.inputs, self._readings.findings
        if not inputs:
            return "no files found"
        first = inputs[0]
        unreadable = findings.first("UNREADABLE", first.path)
        if unreadable:
            return unreadable.text
        if first.unparsed_lines:
            text = f"{first.unparsed_lines} lines speak of speculation and none could be read"
        else:
            unknown = findings.first("NOT_RECOGNISED", first.path)
            text = unknown.text if unknown else "no records"
        more = f" (and {len(inputs) - 1} more files)" if len(inputs) > 1 else ""
        return f"{first.path}: {text}{more}"


def _says(records: Iterable[Record]) -> bool:
    """Whether a block gave records other than remarks about itself."""
    return any(not isinstance(record, Format | Unparsed | Finding) for record in records)


def _engines(known: str | None, engine: str) -> str | None:
    if engine == "unknown" or (known and engine in known.split("+")):
        return known
    return "+".join(itertools.chain([known] if known else [], [engine]))
