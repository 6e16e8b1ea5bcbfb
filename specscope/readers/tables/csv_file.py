"""CSV with a header, by normalised column names."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import BinaryIO

from specscope.readers.tables.cells import LONGEST_CELL, REMEMBERED, bare

_UNIT = re.compile(r"[\[(]([^\])]*)[\])]")
_NO_UNIT = re.compile(r"[\[(](?:ratio|count)[\])]")
_OTHER = re.compile(r"[\W_]+")
_WORDS = {
    "%": " pct ", "/": " per ", "δ": " delta ", "×": " x ", "τ": " tau ", "γ": " gamma ",
    "接受长度": " accept length ", "接受率": " acceptance rate ", "吞吐量": " throughput ",
    "吞吐": " throughput ", "加速比": " speedup ", "并发": " concurrency ",
    "基线": " baseline ", "批大小": " batch ", "方法": " method ", "配置": " config ",
    "指标": " metric ", "上下文": " context ", "延迟": " latency ", "步数": " steps ",
    "服务端": " server ", "客户端": " client ", "基准": " baseline ", "模型": " model ",
    "任务": " task ", "数据集": " dataset ", "场景": " scenario ", "吐字速度": " tok per s ",
    "\\": " per ",
}  # fmt: skip
"""Signs and words of other scripts that column names are made of."""

ROW_LIMIT = 5_000_000


def header(head: bytes) -> list[str]:
    """The columns of the first non-comment line; empty if it has fewer than two."""
    for line in head.decode("utf-8-sig", "replace").splitlines():
        if line.strip() and not line.startswith("#"):
            cells = cells_of(line, delimiter(line))
            return cells if len(cells) > 1 else []
    return []


def cells_of(line: str, mark: str) -> list[str]:
    """The cells of one line; a Markdown row has a bar at both ends."""
    if mark == "|":
        line = line.strip().strip("|")
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=mark), [])]
    except csv.Error:
        return []


def delimiter(line: str) -> str:
    """The most frequent one of comma, semicolon, tab and bar in the header."""
    return max(",;\t|", key=line.count)


def name_of(column: str) -> str:
    """`Mean TPOT (ms)` to `mean_tpot_ms`, `memory.used [MiB]` to `memory_used_mib`."""
    return _name_of(column[:LONGEST_CELL])


@lru_cache(REMEMBERED)
def _name_of(column: str) -> str:
    text = bare(column).lower()
    for word, meaning in _WORDS.items():
        text = text.replace(word, meaning)
    text = _UNIT.sub(lambda m: f" {m.group(1)} ", _NO_UNIT.sub(" ", text))
    return _OTHER.sub("_", text).strip("_")


def rows(stream: BinaryIO) -> Iterator[dict[str, str]]:
    """The rows under their columns as printed. Short and empty rows are left out."""
    text = io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="")
    lines = (line for line in _bounded(text) if line.strip() and not line.startswith("#"))
    first = next(lines, "")
    mark = delimiter(first)
    columns = cells_of(first.rstrip("\r\n"), mark)
    if mark == "|":
        lines = (line.strip().strip("|") for line in lines)
    try:
        for number, row in enumerate(csv.reader(lines, delimiter=mark)):
            if number >= ROW_LIMIT:
                return
            if len(row) == 2 and columns[0].lower() == "metric":
                row += [""] * (len(columns) - 2)  # AIPerf: metrics without a distribution follow
            if len(row) < len(columns) or len(columns) < 2 or any(row[len(columns) :]):
                continue
            cells = [cell.strip() for cell in row]
            if not set("".join(cells)) <= set("-: "):  # the rule below a Markdown header
                yield dict(zip(columns, cells, strict=False))
    except csv.Error:
        return
    finally:
        if not stream.closed:
            text.detach()  # the stream is the caller's


def _bounded(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(1 << 16):
        yield line.replace("\0", "")
