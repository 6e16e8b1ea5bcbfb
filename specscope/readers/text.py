"""Text files made of lines: logs and expositions, several engines in one file if need be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from specscope.readers.lines import line_blocks, marked
from specscope.readers.llamacpp_log import LlamaCppLog
from specscope.readers.llamacpp_print import LlamaCppPrint
from specscope.readers.prometheus import Exposition
from specscope.readers.records import Finding, Format, Record
from specscope.readers.sglang_log import SglangLog
from specscope.readers.source import Source
from specscope.readers.trtllm_log import TrtllmLog
from specscope.readers.vllm_log import VllmLog


class LineParser(Protocol):
    """One engine's lines. `feed` gets only lines that hold a mark."""

    @property
    def name(self) -> str: ...

    @property
    def marks(self) -> tuple[bytes, ...]: ...

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]: ...

    def finish(self) -> Iterable[Record]: ...


PARSERS = (VllmLog, SglangLog, LlamaCppLog, LlamaCppPrint, TrtllmLog, Exposition)


class TextReader:
    """Any file that holds lines of a known engine, wherever in it they start."""

    format = "text"

    def sniff(self, head: bytes) -> float:
        """0.4 where a mark stands in the head, 0.1 for other text: marks may come later."""
        if any(mark in head for parser in PARSERS for mark in parser.marks):
            return 0.4
        return 0.1 if b"\0" not in head[:4096] else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """All records of the parsers that find their lines in the file."""
        parsers: list[LineParser] = [parser(source.name) for parser in PARSERS]
        named: set[str] = set()
        dropped = 0
        for block, long_lines in line_blocks(source.stream):
            dropped += long_lines
            torn = not block.endswith(b"\n")
            for parser in parsers:
                for line in marked(block, parser.marks):
                    for record in parser.feed(line, torn and block.endswith(line)):
                        if parser.name not in named:
                            named.add(parser.name)
                            yield Format(parser.name)
                        yield record
        for parser in parsers:
            for record in parser.finish():
                if parser.name not in named:
                    named.add(parser.name)
                    yield Format(parser.name)
                yield record
        if dropped:
            yield Finding("LONG_LINE", f"{dropped} over-long lines skipped", {"lines": dropped})
