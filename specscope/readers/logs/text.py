"""Text files with lines: logs and Prometheus text, also of several engines in one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from specscope.readers.logs.commands import Commands
from specscope.readers.logs.lines import line_blocks, marked
from specscope.readers.logs.llamacpp_log import LlamaCppLog
from specscope.readers.logs.llamacpp_print import LlamaCppPrint
from specscope.readers.logs.printed_figures import PrintedFigures
from specscope.readers.logs.sglang_log import SglangLog
from specscope.readers.logs.tabby_log import TabbyLog
from specscope.readers.logs.trtllm_log import TrtllmLog
from specscope.readers.logs.vllm_log import VllmLog
from specscope.readers.records import Finding, Format, Record
from specscope.readers.scrapes.prometheus import Exposition
from specscope.readers.source import Source


class LineParser(Protocol):
    """One engine's lines. `feed` gets only lines that hold a mark.

    A search for a mark costs a pass over the file. So a parser's marks are searched only after the
    first block with one of its few gates.
    """

    @property
    def name(self) -> str: ...

    @property
    def gates(self) -> tuple[bytes, ...]: ...

    @property
    def marks(self) -> tuple[bytes, ...]: ...

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]: ...

    def finish(self) -> Iterable[Record]: ...


PARSERS = (
    VllmLog,
    SglangLog,
    LlamaCppLog,
    LlamaCppPrint,
    TrtllmLog,
    Exposition,
    PrintedFigures,
    TabbyLog,
    Commands,
)


class TextReader:
    """Any file with lines of a known engine, wherever they start."""

    format = "text"

    def sniff(self, head: bytes) -> float:
        """0.4 if the head has a gate, 0.1 for other text, in which it may come later."""
        if any(gate in head for parser in PARSERS for gate in parser.gates):
            return 0.4
        return 0.1 if b"\0" not in head[:4096] else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """All records of parsers with lines in the file."""
        named: set[str] = set()
        waiting: list[LineParser] = [parser(source.name) for parser in PARSERS]
        active: list[LineParser] = []
        dropped = 0
        for block, long_lines in line_blocks(source.stream):
            dropped += long_lines
            torn = not block.endswith(b"\n")
            for parser in list(waiting):
                if any(gate in block for gate in parser.gates):
                    waiting.remove(parser)
                    active.append(parser)
            for parser in active:
                for line in marked(block, parser.marks):
                    for record in parser.feed(line, torn and block.endswith(line)):
                        if parser.name not in named:
                            named.add(parser.name)
                            yield Format(parser.name)
                        yield record
        for parser in active:
            for record in parser.finish():
                if parser.name not in named:
                    named.add(parser.name)
                    yield Format(parser.name)
                yield record
        if dropped:
            yield Finding("LONG_LINE", f"{dropped} over-long lines skipped", {"lines": dropped})
