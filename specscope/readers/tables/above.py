"""What stands above a table or a block: captions, commands, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from specscope.readers.tables.cells import bare
from specscope.readers.tables.command_lines import is_command

MOST_CONTEXT = 12
LONGEST_COMMAND = 40
LONGEST_ROW = 8192
LONGEST_LINE = 400
PLAIN = 7
"""The level of a line that heads others without the mark of a heading."""

GRID = re.compile(r"^[\s+|\-=:─━═┏┓┗┛┡┩┳┻╇┷┴┬├┤┼╋└┘┌┐╞╡╪╔╗╚╝╠╣╦╩╬┠┨┿┢┪┣┫]+$")
QUOTE = re.compile(r"^(?:\s*>)+ ?")
HEADING = re.compile(r"^\s*(#+\s*|<summary>\s*|[-*•]\s+)?(.*?)(?:</summary>)?[\s:#*]*$")
_BOX = str.maketrans({"│": "|", "┃": "|", "║": "|", "¦": "|"})


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
        if cells_of_bars(lines[number]):
            break
        text = _said(lines[number])
        if text:
            found.append(text)
        if lines[number].lstrip().startswith("#"):
            break
    return [*found, *(h for h in headings_above(lines, place) if h not in found)]


def headings_above(lines: Sequence[str], place: int) -> Iterator[str]:
    """The headings that a line stands under, from the innermost outwards; headings with nothing
    between them belong together."""
    level, joined = PLAIN, False
    for number in range(place - 1, -1, -1):
        match = re.match(r"^\s{0,3}(#{1,6})\s+(.*)$", lines[number][:LONGEST_LINE])
        if match and (len(match.group(1)) < level or joined):
            level = min(level, len(match.group(1)))
            yield bare(match.group(2)).strip(" #:")
        joined = bool(match) if lines[number].strip() else joined


def legend(arms: Sequence[str], context: Sequence[str]) -> dict[str, str]:
    """Arm to `A (plain decoding)`, if a line above explains each: `Config A: plain decoding`."""
    found: dict[str, str] = {}
    for arm in dict.fromkeys(arms):
        key = re.escape(arm.strip(" ()"))
        told = re.compile(
            rf"^\W*(?:\w+ )?\(?{key}\)?\s?(?:[:=–—]|-\s)\s?(?P<said>.{{3,120}})$", re.I
        )
        lines = [match.group("said") for text in context if (match := told.match(text))]
        if len(lines) != 1 or not key or re.search(r"\d\s?(?:tok|t/s|tps|ms\b|%)", lines[0]):
            return {}
        found[arm] = f"{arm} ({lines[0]})"
    return found if len(found) > 1 else {}


def cells_of_bars(line: str) -> list[str] | None:
    """The cells of a line with bars; None for any other."""
    if len(line) > LONGEST_ROW:
        return None
    text = QUOTE.sub("", line).translate(_BOX).strip()
    if "|" not in text:
        return None
    text = text.replace("\\|", "\0")
    cells = text.removeprefix("|").removesuffix("|").split("|")
    return [cell.replace("\0", "|").strip() for cell in cells]


def _command_above(lines: Sequence[str], end: int) -> tuple[int, list[str] | None]:
    """(where it begins, [its text]) of a fenced block that starts a server; (end, None) for
    others."""
    for number in range(end - 1, max(end - LONGEST_COMMAND, -1), -1):
        if "```" in lines[number]:
            text = " ".join(line.strip(" \\") for line in lines[number + 1 : end])
            return (number, [text[:LONGEST_LINE]]) if is_command(text) else (end, None)
    return end, None


def _said(line: str) -> str:
    text = HEADING.sub(r"\2", bare(QUOTE.sub("", line[:LONGEST_LINE])))
    return "" if not text or GRID.match(text) or text.startswith("|") else text[:240].strip()
