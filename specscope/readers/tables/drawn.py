"""Tables drawn in text: Markdown with or without outer bars, grids of `+--+`, box characters, and
columns aligned by blanks below a line of dashes, and columns parted by tabs or by one blank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from specscope.readers.tables import headers
from specscope.readers.tables.cells import bare, quantity
from specscope.readers.tables.class_columns import split_name
from specscope.readers.tables.command_lines import is_command
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.lists import (
    LONGEST_LINE,
    arms_in_lines,
    figures_in_lines,
    headings_above,
    line_speeds,
    times_in_lines,
)
from specscope.readers.tables.merged_cells import spread
from specscope.readers.tables.names import OFF, ON, WORD, named
from specscope.readers.tables.schema import is_blank
from specscope.readers.tables.sentences import sentences, speeds_in_sentence
from specscope.readers.tables.shape import of_subject
from specscope.readers.tables.table import Table

MOST_COLUMNS = 64
MOST_ROWS = 10_000
MOST_STACKED = 600
WIDEST_STACKED = 10
LONGEST_STACKED = 60
MOST_CONTEXT = 12
LONGEST_COMMAND = 40
LONGEST_ROW = 8192
_BOX = str.maketrans({"│": "|", "┃": "|", "║": "|", "¦": "|"})
_GRID = re.compile(r"^[\s+|\-=:─━═┏┓┗┛┡┩┳┻╇┷┴┬├┤┼╋└┘┌┐╞╡╪╔╗╚╝╠╣╦╩╬┠┨┿┢┪┣┫]+$")
_DASHES = re.compile(r"^(?=.*-{3})\s*-+(?:\s+-+)+\s*$")
_LONG_RULE = re.compile(r"^\s*[-=─━_]{8,}\s*$")
_UNIT_IN_NAME = re.compile(r"\b(?:tok(?:en)?s?/s|t/s|tps)\b", re.IGNORECASE)
_WORDS = re.compile(r"\S+(?: \S+)*")
_NUMBERS_LAST = re.compile(
    r"^\s*(?P<name>\S.*?)(?P<numbers>(?:\s+[~≈+-]?\d[\d,.]{0,15}(?:%|x|×|ms|s|k)?)+)\s*$"
)
_QUOTE = re.compile(r"^(?:\s*>)+ ?")
_PAIR = re.compile(r"\b([A-Za-z]\w{3,40})\s?[=:]\s?(\d{1,9}(?:\.\d{1,6})?)(?![\w.])")
_LABEL = re.compile(r"^([^\W\d][^:]{1,40}):\s")
_HEADING = re.compile(r"^\s*(?:#+\s*|<summary>\s*|[-*]\s+)?(.*?)(?:</summary>)?[\s:#*]*$")


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
            or _listed(lines, place)
            or _paired(lines, place)
            or _stacked(lines, place)
        )
        if found is None:
            place += 1
            continue
        table, taken = found
        above = [*context_above(lines, taken.start), *outer]
        for one in (_arms_in_items(table), table):
            if one is not None:
                yield of_subject(replace(one, context=above)), taken
        place = taken.stop


def caption_above(lines: Sequence[str], place: int) -> str:
    """The nearest line above that says something, without its marks; empty if it is far away."""
    for number in range(place - 1, max(place - 4, -1), -1):
        text = _said(lines[number])
        if text:
            return text
    return ""


def context_above(lines: Sequence[str], place: int) -> list[str]:
    """The lines above that say something, nearest first, up to the table or block before, then the
    headings."""
    found = []
    number = place
    least = max(place - MOST_CONTEXT, 0)
    while number > least:
        number -= 1
        if "```" in lines[number]:
            number, command = _command_above(lines, number)
            if command is None:
                break
            found += command
            least = max(number - MOST_CONTEXT, 0)
            continue
        if _cells(lines[number]):
            break
        text = _said(lines[number])
        if text:
            found.append(text)
        if lines[number].lstrip().startswith("#"):
            break
    return [*found, *(h for h in headings_above(lines, place) if h not in found)]


def _command_above(lines: Sequence[str], end: int) -> tuple[int, list[str] | None]:
    """(where it begins, [its text]) of a fenced block that starts a server; (end, None) for
    others."""
    for number in range(end - 1, max(end - LONGEST_COMMAND, -1), -1):
        if "```" in lines[number]:
            text = " ".join(line.strip(" \\") for line in lines[number + 1 : end])
            return (number, [text[:LONGEST_LINE]]) if is_command(text) else (end, None)
    return end, None


def is_spaced(text: str) -> bool:
    """Whether the text holds columns that blanks alone part."""
    lines = text.splitlines()
    return any(
        any(shape(lines, place) for shape in (_spaced, _worded, _paired, _stacked))
        for place in range(len(lines))
    )


def _said(line: str) -> str:
    text = _HEADING.sub(r"\1", bare(_QUOTE.sub("", line[:LONGEST_LINE])))
    return "" if not text or _GRID.match(text) or text.startswith("|") else text[:240].strip()


def _cells(line: str) -> list[str] | None:
    """The cells of a line with bars; None for any other."""
    if len(line) > LONGEST_ROW:
        return None
    text = _QUOTE.sub("", line).translate(_BOX).strip()
    if "|" not in text:
        return None
    text = text.replace("\\|", "\0")
    cells = text.removeprefix("|").removesuffix("|").split("|")
    return [cell.replace("\0", "|").strip() for cell in cells]


def _is_rule(line: str) -> bool:
    text = _QUOTE.sub("", line[:LONGEST_ROW]).strip()
    return len(text) > 2 and bool(_GRID.match(text)) and not set(text) <= {"|", " "}


def _barred(lines: Sequence[str], place: int) -> tuple[Table, range] | None:
    header = _cells(lines[place])
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
        cells = _cells(lines[end])
        if cells is None or len(cells) < 2:
            break
        if end == last and lines[place].rstrip().endswith("|") > lines[end].rstrip().endswith("|"):
            cells[-1] = ""  # the paste ends within it
        rows.append((cells + [""] * len(header))[: len(header)])
        end += 1
    return _made(header, rows, caption_above(lines, place)), range(place, end)


def _aligned(lines: Sequence[str], place: int) -> tuple[Table, range] | None:
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
    return _made(header, rows, caption_above(lines, place)), range(place, end)


def _tabbed(lines: Sequence[str], place: int) -> tuple[Table, range] | None:
    """Rows with tabs, as copied from a rendered table; blank lines may stand between."""
    header = [cell.strip() for cell in _QUOTE.sub("", lines[place]).strip().split("\t")]
    if not 3 <= len(header) <= MOST_COLUMNS or any(quantity(cell) for cell in header):
        return None
    rows: list[list[str]] = []
    end = place + 1
    while end < len(lines) and len(rows) < MOST_ROWS:
        cells = [cell.strip() for cell in _QUOTE.sub("", lines[end]).strip().split("\t")]
        if any(cells) and len(cells) < 3:
            break
        if len(cells) >= 3:
            rows.append((cells + [""] * len(header))[: len(header)])
        end += 1
    if not rows:
        return None
    return _made(header, rows, caption_above(lines, place)), range(place, end)


def _spaced(lines: Sequence[str], place: int) -> tuple[Table, range] | None:
    """Columns parted by two blanks or more, with or without a rule below their header."""
    header = _columns(lines[place])
    if not 3 <= len(header) <= MOST_COLUMNS or any(quantity(cell) for cell in header):
        return None
    if _GRID.match(lines[place]):
        return None  # a rule names no columns
    end = place + 1
    ruled = end < len(lines) and bool(_LONG_RULE.match(lines[end]))
    rows: list[list[str]] = []
    while end < len(lines) and len(rows) < MOST_ROWS:
        if _LONG_RULE.match(lines[end]):
            end += 1
            continue
        cells = _fitted(lines[place], lines[end])
        if cells is None:
            break
        rows.append(cells)
        end += 1
    if len(rows) < (1 if ruled else 2):
        return None
    return _made(header, rows, caption_above(lines, place)), range(place, end)


def _worded(lines: Sequence[str], place: int) -> tuple[Table, range] | None:
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
    return _made(names, rows, caption_above(lines, place)), range(place, end)


def _stacked(lines: Sequence[str], place: int) -> tuple[Table, range] | None:
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
            table = _made(header, rows, caption_above(lines, place))
            return table, range(place, place + width * (len(rows) + 1))
    return None


def _paired(lines: Sequence[str], place: int) -> tuple[Table, range] | None:
    """`baseline_tpot_ms = 12.51, spec_tpot_ms = 10.68`: the names of columns with their cells."""
    pairs = _PAIR.findall(lines[place][:LONGEST_LINE])
    arms = [split[0] for name, _ in pairs if (split := split_name(name_of(name)))]
    states = {named(arm.replace("_", " ")).state for arm in arms}
    if len(pairs) < 2 or ON not in states or not states & {OFF, WORD}:
        return None
    names, values = zip(*pairs, strict=True)
    return _made(["", *names], [["", *values]], ""), range(place, place + 1)


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


def _columns(line: str) -> list[str]:
    text = line.strip()
    return re.split(r"\s{2,}|\t", text) if len(line) <= LONGEST_ROW and "  " in text else []


def _listed(lines: Sequence[str], place: int) -> tuple[Table, range] | None:
    """Arms in neighbouring lines; a line between that measures nothing names the class below it."""
    found = arms_in_lines(lines, place)
    timed = times_in_lines(lines, place) if found is None else None
    if timed is not None:
        cells = [[row.arm, row.speed] for row in timed[0]]
        caption = caption_above(lines, place)
        return _made(["arm", "latency (s)"], cells, caption), range(place, timed[1] + 1)
    figures = figures_in_lines(lines, place) if found is None else None
    if figures is not None:
        table = _made(["label", figures.measure], figures.rows, caption_above(lines, place))
        return table, range(place, figures.last + 1)
    if found is None:
        return None
    rows, last = found
    labelled = len({row.label for row in rows}) > 1
    header = ["arm", "label", "tok/s"] if labelled else ["arm", "tok/s"]
    cells = [[row.arm, row.label, row.speed] if labelled else [row.arm, row.speed] for row in rows]
    return _made(header, cells, caption_above(lines, place)), range(place, last + 1)


def of_sentences(lines: Sequence[str]) -> Iterator[Table]:
    """A table for each sentence that gives the speed of a run with and of one without
    speculation."""
    for sentence in sentences(lines):
        arms = speeds_in_sentence(sentence)
        label = _LABEL.match(sentence)
        if arms and label and not named(label.group(1)).state:
            rows = [(label.group(1), *arm) for arm in arms]
            yield _made(["label", "arm", "tok/s"], rows, sentence[:60])
        elif arms:
            yield _made(["arm", "tok/s"], arms, sentence[:60])


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
    return _made(["arm", "tok/s"], rows, table.caption)


def _as_line(name: str, value: str) -> str:
    """`PR MTP tok/s` and `64.25` as `PR MTP: 64.25 tok/s`."""
    unit = _UNIT_IN_NAME.search(name)
    number = quantity(value)
    if unit and number and not number.unit:
        return f"{name[: unit.start()]} {name[unit.end() :]}".strip() + f": {value} {unit.group()}"
    return f"{name}: {value}"


def _made(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Table:
    header, rows = spread(header, rows)
    printed: dict[str, str] = {}
    for place, cell in enumerate(header):
        name = name_of(cell) or ("row" if place == 0 else f"column_{place}")
        printed.setdefault(name, bare(cell))
    names = list(printed)
    if len(names) < len(header):  # two columns of one name cannot be told apart
        names = [name_of(cell) or f"column_{place}" for place, cell in enumerate(header)]
        names = [
            f"{name}_{place}" if names.index(name) != place else name
            for place, name in enumerate(names)
        ]
        printed = {name: bare(cell) for name, cell in zip(names, header, strict=True)}
    made = [dict(zip(names, map(bare, row), strict=True)) for row in rows]
    return Table(names, made, caption, printed)
