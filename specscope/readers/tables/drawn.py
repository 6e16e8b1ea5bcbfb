"""Tables drawn in text: Markdown with or without outer bars, grids of `+--+`, box characters, and
columns aligned by blanks below a line of dashes, and columns parted by tabs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from specscope.readers.tables.cells import bare, quantity
from specscope.readers.tables.csv_file import name_of
from specscope.readers.tables.names import k_of, role_of
from specscope.readers.tables.shape import Table

MOST_COLUMNS = 64
MOST_ROWS = 10_000
LONGEST_LABEL = 60
LONGEST_LINE = 400
"""Of a line that is taken for a caption or a list; patterns stay fast on what is no text at all."""

LONGEST_ROW = 8192
_BOX = str.maketrans({"│": "|", "┃": "|", "║": "|", "¦": "|"})
_GRID = re.compile(r"^[\s+|\-=:─━═┏┓┗┛┡┩┳┻╇┷┴┬├┤┼╋└┘┌┐╞╡╪╔╗╚╝╠╣╦╩╬┠┨┿┢┪┣┫]+$")
_DASHES = re.compile(r"^\s*-{2,}(?:\s+-{2,})+\s*$")
_LISTED = re.compile(
    r"^[\s>*•+-]{0,12}(?P<arm>[^\s:|,]{1,40}(?: [^\s:|,]{1,40}){0,4})(?::|,(?= \[))\s"
    r"(?!.* vs\.? ).*?(?P<last>\d[\d.,]{0,15})\s{0,3}(?P<unit>tok(?:en)?s?/s(?:ec)?|t/s|tps)\b"
    r"(?!.*\d\s*(?:tok(?:en)?s?/s|t/s|tps))"
)
_QUOTE = re.compile(r"^(?:\s*>)+ ?")
_HEADING = re.compile(r"^\s*(?:#+\s*|<summary>\s*|[-*]\s+)?(.*?)(?:</summary>)?[\s:#*]*$")


def tables(lines: Sequence[str]) -> Iterator[tuple[Table, range]]:
    """(a table, its lines' numbers) in order; a table has a header, a rule below it, and rows."""
    place = 0
    while place < len(lines):
        found = (
            _barred(lines, place)
            or _aligned(lines, place)
            or _tabbed(lines, place)
            or _listed(lines, place)
        )
        if found is None:
            place += 1
            continue
        yield found
        place = found[1].stop


def has_list(text: str) -> bool:
    """Whether a text lists speeds of a baseline and of something else."""
    found = [_listing(line) for line in text.splitlines()]
    arms = [match.group("arm") for match in found if match]
    roles = {role_of(arm, k_of(arm)) for arm in arms}
    return "target_only" in roles and len(roles) > 1


def caption_above(lines: Sequence[str], place: int) -> str:
    """The nearest line above that says something, without its marks; empty if it is far away."""
    for number in range(place - 1, max(place - 4, -1), -1):
        text = _HEADING.sub(r"\1", bare(_QUOTE.sub("", lines[number][:LONGEST_LINE])))
        if text and not _GRID.match(text):
            return text[:120].strip()
    return ""


def _listing(line: str) -> re.Match[str] | None:
    return _LISTED.match(bare(line)) if len(line) <= LONGEST_LINE else None


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
    while end < len(lines) and len(rows) < MOST_ROWS:
        if _is_rule(lines[end]):
            end += 1
            continue
        cells = _cells(lines[end])
        if cells is None or len(cells) < 2:
            break
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


def _listed(lines: Sequence[str], place: int) -> tuple[Table, range] | None:
    """`without eagle: 21 tps` below `with eagle: 30 tps`: arms in a list, a baseline among them.

    A line in between that measures nothing (`tp = 4`) names the class of those below it.
    """
    rows: list[list[str]] = []
    label, end, last = "", place, place
    while end < len(lines) and len(rows) < MOST_ROWS:
        match = _listing(lines[end])
        if match:
            speed = f"{match.group('last')} {match.group('unit')}"
            rows.append([match.group("arm").strip(), label, speed])
            last = end
        elif lines[end].strip() and rows and len(lines[end]) > LONGEST_LABEL:
            break
        elif lines[end].strip():
            label = _HEADING.sub(r"\1", bare(lines[end][:LONGEST_LINE]))[:LONGEST_LABEL]
            if not rows and (end > place or not label):
                return None
        elif not rows:
            return None
        end += 1
    roles = [role_of(row[0], k_of(row[0])) for row in rows]
    if "target_only" not in roles or len(set(roles)) < 2:
        return None
    kept = {row[1] for row in rows}
    header = ["arm", "label", "tok/s"] if len(kept) > 1 else ["arm", "tok/s"]
    cells = [row if len(kept) > 1 else [row[0], row[2]] for row in rows]
    return _made(header, cells, caption_above(lines, place)), range(place, last + 1)


def _made(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Table:
    printed: dict[str, str] = {}
    for place, cell in enumerate(header):
        name = name_of(cell) or ("" if place == 0 else f"column_{place}")
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
