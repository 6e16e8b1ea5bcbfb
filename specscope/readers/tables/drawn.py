"""Tables drawn in text: Markdown with or without outer bars, grids of `+--+`, box characters, and
columns aligned by blanks below a line of dashes, and columns parted by tabs or by one blank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from specscope.readers.tables import headers
from specscope.readers.tables.above import (
    GRID,
    LONGEST_LINE,
    LONGEST_ROW,
    QUOTE,
    caption_above,
    cells_of_bars,
    context_above,
)
from specscope.readers.tables.blocks import blocks_of_figures
from specscope.readers.tables.cells import bare, quantity
from specscope.readers.tables.class_columns import split_name
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.lists import (
    arms_in_lines,
    figures_in_lines,
    line_speeds,
    times_in_lines,
)
from specscope.readers.tables.names import OFF, ON, WORD, named
from specscope.readers.tables.schema import is_blank
from specscope.readers.tables.sentences import sentences, told_in_sentence
from specscope.readers.tables.shape import of_subject
from specscope.readers.tables.table import Table, made

MOST_COLUMNS = 64
MOST_ROWS = 10_000
MOST_STACKED = 600
WIDEST_STACKED = 10
LONGEST_STACKED = 60
_DASHES = re.compile(r"^(?=.*-{3})\s*-+(?:\s+-+)+\s*$")
_LONG_RULE = re.compile(r"^\s*[-=─━_]{8,}\s*$")
_UNIT_IN_NAME = re.compile(r"\b(?:tok(?:en)?s?/s|t/s|tps)\b", re.IGNORECASE)
_WORDS = re.compile(r"\S+(?: \S+)*")
_NUMBERS_LAST = re.compile(
    r"^\s*(?P<name>\S.*?)(?P<numbers>(?:\s+[~≈+-]?\d[\d,.]{0,15}(?:%|x|×|ms|s|k)?)+)\s*$"
)
_PAIR = re.compile(
    r"\b([A-Za-z]\w{3,40})\s?[=:]\s{0,20}"
    r"(\d{1,9}(?:\.\d{1,6})?(?:\s?(?:ms(?:/tok\w*)?|tok\w*/s(?:ec)?|t/s|tps|%|x))?)(?![\w.])"
)
_LABEL = re.compile(r"^([^\W\d][^:]{1,40}):\s")


class Drawn(NamedTuple):
    """A table as it stands in the text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    taken: range
    """The numbers of its lines."""


def tables(lines: Sequence[str], outer: Sequence[str] = ()) -> Iterator[tuple[Table, range]]:
    """(a table, its lines' numbers) in order; a table has a header, a rule below it, and rows.

    outer: what stands above the lines, nearest first.
    """
    place = 0
    while place < len(lines):
        found = (
            _barred(lines, place)
            or _aligned(lines, place)
            or _tabbed(lines, place)
            or _spaced(lines, place)
            or _worded(lines, place)
            or _blocks(lines, place)
            or _listed(lines, place)
            or _paired(lines, place)
            or _stacked(lines, place)
        )
        if found is None:
            place += 1
            continue
        table = made(found.header, found.rows, caption_above(lines, found.taken.start))
        taken = found.taken
        above = [*context_above(lines, taken.start), *outer]
        for one in (_arms_in_items(table), table):
            if one is not None:
                yield of_subject(replace(one, context=above)), taken
        place = taken.stop


def is_spaced(text: str) -> bool:
    """Whether the text holds columns that blanks alone part."""
    lines = text.splitlines()
    return any(
        any(shape(lines, place) for shape in (_spaced, _worded, _blocks, _paired, _stacked))
        for place in range(len(lines))
    )


def _is_rule(line: str) -> bool:
    text = QUOTE.sub("", line[:LONGEST_ROW]).strip()
    return len(text) > 2 and bool(GRID.match(text)) and not set(text) <= {"|", " "}


def _barred(lines: Sequence[str], place: int) -> Drawn | None:
    header = cells_of_bars(lines[place])
    if header is None or _is_rule(lines[place]) or len(header) < 2 or len(header) > MOST_COLUMNS:
        return None
    if place + 1 >= len(lines) or not _is_rule(lines[place + 1]):
        return None
    rows: list[list[str]] = []
    end = place + 2
    last = max(number for number, line in enumerate(lines) if line.strip())
    while end < len(lines) and len(rows) < MOST_ROWS:
        if _is_rule(lines[end]):
            end += 1
            continue
        cells = cells_of_bars(lines[end])
        if cells is None or len(cells) < 2:
            break
        if end == last and lines[place].rstrip().endswith("|") > lines[end].rstrip().endswith("|"):
            cells[-1] = ""  # the paste ends within it
        rows.append((cells + [""] * len(header))[: len(header)])
        end += 1
    return Drawn(header, rows, range(place, end))


def _aligned(lines: Sequence[str], place: int) -> Drawn | None:
    if place + 1 >= len(lines) or len(lines[place + 1]) > LONGEST_ROW:
        return None
    if not _DASHES.match(lines[place + 1]):
        return None
    starts = [match.start() for match in re.finditer(r"-+", lines[place + 1])]
    if not 2 <= len(starts) <= MOST_COLUMNS:
        return None
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    header = [lines[place][start:end].strip() for start, end in spans]
    rows: list[list[str]] = []
    end = place + 2
    while end < len(lines) and lines[end].strip() and len(rows) < MOST_ROWS:
        if not _is_rule(lines[end]):
            rows.append([lines[end][start:stop].strip() for start, stop in spans])
        end += 1
    return Drawn(header, rows, range(place, end))


def _tabbed(lines: Sequence[str], place: int) -> Drawn | None:
    """Rows with tabs, as copied from a rendered table; blank lines may stand between."""
    header = [cell.strip() for cell in QUOTE.sub("", lines[place]).strip().split("\t")]
    if not 3 <= len(header) <= MOST_COLUMNS or any(quantity(cell) for cell in header):
        return None
    rows: list[list[str]] = []
    end = place + 1
    while end < len(lines) and len(rows) < MOST_ROWS:
        cells = [cell.strip() for cell in QUOTE.sub("", lines[end]).strip().split("\t")]
        if any(cells) and len(cells) < 3:
            break
        if len(cells) >= 3:
            rows.append((cells + [""] * len(header))[: len(header)])
        end += 1
    if not rows:
        return None
    return Drawn(header, rows, range(place, end))


def _spaced(lines: Sequence[str], place: int) -> Drawn | None:
    """Columns parted by two blanks or more, with or without a rule below their header."""
    header = _columns(lines[place])
    if not 3 <= len(header) <= MOST_COLUMNS or any(quantity(cell) for cell in header):
        return None
    if GRID.match(lines[place]):
        return None  # a rule names no columns
    names = _under_heads(lines[place - 1] if place else "", header)
    start = place - (names is not header)
    end = place + 1
    ruled = end < len(lines) and bool(_LONG_RULE.match(lines[end]))
    rows: list[list[str]] = []
    while end < len(lines) and len(rows) < MOST_ROWS:
        if _LONG_RULE.match(lines[end]):
            end += 1
            continue
        cells = _fitted(lines[place], lines[end])
        if cells is None and rows and _indent(lines[end]) > _indent(lines[place]) + 8:
            end += 1  # what belongs to the row above
            continue
        if cells is None:
            break
        rows.append(cells)
        end += 1
    if len(rows) < (1 if ruled else 2):
        return None
    return Drawn(names, rows, range(start, end))


def _under_heads(above: str, header: list[str]) -> list[str]:
    """`tok/s  TPOT  tok/s  TPOT` below `baseline  eagle`, with the head in each name."""
    heads = [head for found in _WORDS.findall(above[:LONGEST_ROW]) if (head := found.strip("-=| "))]
    for first in range(len(header) - 2 if len(heads) > 1 else 0):
        own = header[first:]
        width = len(own) // len(heads)
        if width and own == own[:width] * len(heads):
            names = [f"{heads[place // width]} {name}" for place, name in enumerate(own)]
            return [*header[:first], *names]
    return header


def _worded(lines: Sequence[str], place: int) -> Drawn | None:
    """Cells parted by one blank, as copied from a page: a measure in the header, and a number below
    each of its words."""
    header = lines[place].split() if len(lines[place]) <= LONGEST_LINE else []
    told = any(headers.metric_of(name_of(word)) for word in header)
    if not told or len(header) < 2 or any(map(quantity, header)):
        return None
    rows: list[list[str]] = []
    end = place + 1
    while end < len(lines) and (match := _NUMBERS_LAST.match(lines[end][:LONGEST_LINE])):
        numbers = match.group("numbers").split()
        if len(match.group("name").split()) > (3 if len(numbers) == 1 else 6):
            break  # prose
        rows.append([match.group("name").strip(), *numbers])
        end += 1
    if len(rows) < 2 or {len(row) for row in rows} != {len(rows[0])} or not rows[0][0]:
        return None
    names = ["", *header] if len(header) == len(rows[0]) - 1 else header
    if len(names) != len(rows[0]):
        return None
    return Drawn(names, rows, range(place, end))


def _stacked(lines: Sequence[str], place: int) -> Drawn | None:
    """A table whose cells stand one a line, as copied from a rendered page: names of columns, a
    measure among them, and rows that have a number below each measure."""
    cells: list[str] = []
    for line in lines[place : place + MOST_STACKED]:
        text = bare(line[:LONGEST_LINE])
        if not text or len(text) > LONGEST_STACKED or "|" in text or "\t" in text:
            break
        cells.append(text)
    for width in range(2, min(len(cells) // 3, WIDEST_STACKED) + 1):
        header = cells[:width]
        measures = [i for i, cell in enumerate(header) if headers.metric_of(name_of(cell))]
        if any(map(quantity, header)):
            break
        if not measures or measures[0] == 0:
            continue
        rows: list[list[str]] = []
        for start in range(width, len(cells) - width + 1, width):
            row = cells[start : start + width]
            told = [bool(quantity(row[i])) for i in measures]
            if not any(told) or not all(
                t or is_blank(row[i]) for t, i in zip(told, measures, strict=True)
            ):
                break
            rows.append(row)
        if len(rows) > 1:
            return Drawn(header, rows, range(place, place + width * (len(rows) + 1)))
    return None


def _paired(lines: Sequence[str], place: int) -> Drawn | None:
    """`baseline_tpot_ms = 12.51, spec_tpot_ms = 10.68`, in one line or one below the other: the
    names of columns with their cells."""
    pairs: dict[str, str] = {}
    end = place
    while end < len(lines) and len(pairs) < MOST_COLUMNS:
        own = _PAIR.findall(lines[end][:LONGEST_LINE])
        alone = not re.search(r"\w", _PAIR.sub("", lines[end][:LONGEST_LINE]))
        if not own or (end > place and not alone) or any(name in pairs for name, _ in own):
            break
        pairs.update(own)
        end += 1
        if not alone:
            break
    arms = [split[0] for name in pairs if (split := split_name(name_of(name)))]
    states = {named(arm.replace("_", " ")).state for arm in arms}
    if len(pairs) < 2 or ON not in states or not states & {OFF, WORD}:
        return None
    return Drawn(["", *pairs], [["", *pairs.values()]], range(place, end))


def _fitted(header: str, line: str) -> list[str] | None:
    """The cells of a row below their columns: a remark behind the last is left out, and cells of a
    row with gaps belong to the columns that they stand under. None for a line that is no row."""
    cells, width = _columns(line), len(_columns(header))
    if not any(quantity(cell) for cell in cells[1:]):
        return None
    if len(cells) > width and not any(quantity(cell) for cell in cells[width:]):
        cells = cells[:width]
    if len(cells) == width:
        return cells
    spans, starts = ([m.start() for m in _WORDS.finditer(text)] for text in (header, line))
    places = [min(range(width), key=lambda i: abs(spans[i] - at)) for at in starts]
    if len(cells) > width or len(set(places)) < len(places):
        return None
    by_place = dict(zip(places, cells, strict=True))
    return [by_place.get(place, "") for place in range(width)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _columns(line: str) -> list[str]:
    text = line.strip()
    return re.split(r"\s{2,}|\t", text) if len(line) <= LONGEST_ROW and "  " in text else []


def _blocks(lines: Sequence[str], place: int) -> Drawn | None:
    found = blocks_of_figures(lines, place) if lines[place].strip() else None
    return Drawn(found.header, found.rows, range(place, found.last + 1)) if found else None


def _listed(lines: Sequence[str], place: int) -> Drawn | None:
    """Arms in neighbouring lines; a line between that measures nothing names the class below it."""
    found = arms_in_lines(lines, place)
    timed = times_in_lines(lines, place) if found is None else None
    if timed is not None:
        cells = [[row.arm, row.speed] for row in timed[0]]
        return Drawn(["arm", "latency (s)"], cells, range(place, timed[1] + 1))
    figures = figures_in_lines(lines, place) if found is None else None
    if figures is not None:
        return Drawn(["label", figures.measure], figures.rows, range(place, figures.last + 1))
    if found is None:
        return None
    rows, last = found
    labelled = len({row.label for row in rows}) > 1
    header = ["arm", "label", "tok/s"] if labelled else ["arm", "tok/s"]
    cells = [[row.arm, row.label, row.speed] if labelled else [row.arm, row.speed] for row in rows]
    return Drawn(header, cells, range(place, last + 1))


def of_sentences(lines: Sequence[str]) -> Iterator[Table]:
    """A table for each sentence that gives the speed of a run with and of one without
    speculation."""
    for sentence in sentences(lines):
        told = told_in_sentence(sentence)
        head = _LABEL.match(sentence)
        label = head.group(1) if head and not named(head.group(1)).state else ""
        rows = [(klass or label, arm, speed) for klass, arm, speed in told]
        measure = "TPOT (ms)" if any(row[2].endswith("ms/token") for row in rows) else "tok/s"
        if any(row[0] for row in rows):
            yield made(["label", "arm", measure], rows, sentence[:60])
        elif rows:
            yield made(["arm", measure], [row[1:] for row in rows], sentence[:60])


def _arms_in_items(table: Table) -> Table | None:
    """A table of two columns whose rows name an arm and give its speed, as a list of them."""
    if len(table.names) != 2 or table.names[0] == "arm":
        return None
    first, second = table.names
    lines = [_as_line(row[first], row[second]) for row in table.rows]
    found = arms_in_lines([line for line in lines if line_speeds(line)], 0)
    if found is None:
        return None
    rows = [[row.arm, row.speed] for row in found[0]]
    return made(["arm", "tok/s"], rows, table.caption)


def _as_line(name: str, value: str) -> str:
    """`PR MTP tok/s` and `64.25` as `PR MTP: 64.25 tok/s`."""
    unit = _UNIT_IN_NAME.search(name)
    number = quantity(value)
    if unit and number and not number.unit:
        return f"{name[: unit.start()]} {name[unit.end() :]}".strip() + f": {value} {unit.group()}"
    return f"{name}: {value}"
