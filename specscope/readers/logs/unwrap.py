"""Join log lines that a terminal or a chat wrapped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MOST_PIECES = 8
LONGEST_PIECE = 400
_KINDS = (
    # (a line of this kind, what it ends with)
    (
        "SpecDecoding metrics:",
        re.compile(
            r"Per-position acceptance rate: [\d., ]*\d(?:$|, Avg Draft acceptance rate: [\d.]+%)"
            r"|Drafted: \d+ tokens$"
        ),
    ),
    (
        "Speculative metrics:",
        re.compile(r"emitted tokens(?: tokens)?: \d+\.$|draft tokens: \d+, ?$"),
    ),
    ("Decode batch", re.compile(r"gen throughput \(token/s\): [\d.]+, #queue-req: \d+")),
    ("Avg prompt throughput:", re.compile(r"generation throughput: [\d.]+ tokens/s, Running: \d+")),
)
# The words of those lines: a join that makes another word was made in the wrong way.
_WORD = re.compile(
    r"(?:"
    r"mean|acceptance|length|accepted|throughput|tokens|drafted|per|position|rate|avg|draft"
    r"|system|efficiency|number|of|speculative|emitted|decode|batch|running|req|token|usage"
    r"|accept|len|gen|queue|prompt|generation|reqs|swapped|pending|gpu|cpu|kv|cache|prefix|hit"
    r"|full|swa|cuda|graph|pre|allocated|retracted|transfer|mamba|num|specdecoding|metrics"
    r"|waiting|true|false|s"
    r")",
    re.IGNORECASE,
)
_HEAD = re.compile(r"^\W{0,12}(?:\(\w+ pid=|INFO\b|WARN|ERROR|\[?\d{4}-\d\d-\d\d|[\w.\-/]+ +\| )")


def unwrapped(lines: Sequence[str]) -> Iterator[str]:
    """The lines, with the pieces of a broken statistics line joined if they make a whole one."""
    place = 0
    while place < len(lines):
        joined, used = _joined(lines, place)
        yield joined
        place += used


def is_wrapped(text: str) -> bool:
    """Whether any statistics line of a text is continued on the next."""
    lines = text.splitlines()
    return any(_joined(lines, place)[1] > 1 for place in range(len(lines)))


def _joined(lines: Sequence[str], place: int) -> tuple[str, int]:
    line = lines[place]
    mark, ending = next((kind for kind in _KINDS if kind[0] in line), ("", None))
    if ending is None or len(line) > LONGEST_PIECE or ending.search(line.rstrip()):
        return line, 1
    pieces = [line.rstrip("\r")]
    for piece in lines[place + 1 : place + MOST_PIECES]:
        if not piece.strip() or len(piece) > LONGEST_PIECE or _HEAD.match(piece):
            break
        pieces.append(piece.rstrip("\r"))
    for used in range(2, len(pieces) + 1):
        for text in (_between_words(pieces[:used]), _within_words(pieces[:used])):
            if ending.search(text) and _is_sound(text[text.index(mark) :]):
                return text, used
    return line, 1


def _between_words(pieces: Sequence[str]) -> str:
    text = pieces[0].rstrip()
    for piece in pieces[1:]:
        text += ("" if text.endswith("-") else " ") + piece.strip(" \t>")
    return text


def _within_words(pieces: Sequence[str]) -> str:
    """Pieces that were cut at a fixed width, if they are all of one."""
    one_width = len({len(piece) for piece in pieces[:-1]}) == 1
    return "".join(pieces).rstrip() if one_width else ""


def _is_sound(text: str) -> bool:
    if re.search(r"\d \d|\.\d+\.\d|,[^\s]", text):
        return False
    if "Mean acceptance length: " in text[:50] and not re.search(r"acceptance rate: [\d.]+%", text):
        return False  # this spelling ends with a rate: the positions before it may go on
    return all(_WORD.fullmatch(word) for word in re.findall(r"[A-Za-z]+", text))
