"""Speeds in one sentence: `32 tok/s without the draft, 41 tok/s with it`.

A sentence counts only if it has two speeds, one of a run with and one of a run without speculation,
each next to its name. A gain in the sentence must agree with them. Two such pairs need a class
each, and a list of arms (`EAGLE 53 tok/s, MTP 56, no draft 30`) needs one run without speculation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from specscope.readers.tables.attributes import several, unlike
from specscope.readers.tables.cells import bare, quantity, ratio_of, unit_first
from specscope.readers.tables.names import (
    OFF,
    ON,
    SILENT,
    WORD,
    is_drafter,
    is_planned,
    named,
    words,
)

LONGEST_SENTENCE = 320
LONGEST_PARAGRAPH = 4000
LONGEST_NAME = 60

_END = re.compile(r"(?<=[.!?;])\s+(?=[A-Z*_`\"'(\[])")
_SPEED = re.compile(
    r"(?<![\w.,/-])[~≈]?(?P<value>\d[\d.,]{0,24}(?:\s?[-–]\s?\d[\d.,]{0,8})?)\s{0,3}"
    r"(?P<unit>tok(?:en)?s?[\s-]?(?:/|per)[\s-]?s(?:ec(?:ond)?)?|t/s|tps)?(?![\w/%.]*[\w/%])",
    re.IGNORECASE,
)
_UNITLESS = re.compile(r"\s*\(?(?:(?:with|without|w/|w/o)\b|(?:->|→)\s?~?\d)", re.IGNORECASE)
_NOT_MEASURED = re.compile(
    r"\?|\b(?:would|could|should|might|may|up to|at (?:least|most|best)|claim\w*|advertis\w*"
    r"|hop(?:e|ed|ing)|want\w*|imagine|suppose\w*|maybe|aim\w*|prefill|prompt processing|ttft"
    r"|prompt (?:speed|eval\w*|rate|throughput|tok\w*)|competitors?|someone|others|they|their"
    r"|peak|between|on average \d+ of|compared? (?:with|to) (?:vllm|sglang|llama|ollama))\b",
    re.IGNORECASE,
)
_JOINT = re.compile(
    r"[,;:–—]|\s-\s|\b(?:and|vs\.?|versus|but|while|whereas|to|from|compared (?:to|with)|against"
    r"|up from|down from|instead of)\b",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"^\W*(?:with|without|w/|w/o)(?:\s+(?:it|that|this|one|them))?\W*$", re.IGNORECASE
)
_SWITCHED = re.compile(
    r"\b(?:(?P<on>enabl(?:ing|ed?)|add(?:ing|ed)|activat(?:ing|ed)|turn(?:ing|ed)?|switch(?:ing|ed)?)"
    r"|(?P<off>disabl(?:ing|ed?)|remov(?:ing|ed)|deactivat(?:ing|ed)))\s+(?P<side>on\s|off\s)?"
    r"(?P<what>[^,:;.()→]{3,60}?)(?=\s+(?:on|off|took|takes|brought|brings|rais\w+|lower\w+|cuts?"
    r"|gave|gives|moved|drop\w+|made|makes|went|increas\w+|decreas\w+|improv\w+|boost\w+|slow\w+"
    r"|sped|for|at|in|from|got|the|our|my|decod\w+ (?:rate|speed)|throughput)\b"
    r"|\s?[,:;.()]|\s[-–—]|\s(?=[~≈]?\d)|\s?$)(?P<behind>\s(?:on|off)\b(?! the| a| an| my| our))?",
    re.IGNORECASE,
)
"""Speculation that is switched: `enabling MTP`, `turned the draft model off`."""

_PER_TOKEN = re.compile(
    r"\b(?:tpot|(?:time|latency|ms)[ -]per[ -](?:output[ -])?token|per-token latency)\b",
    re.IGNORECASE,
)
_MS = re.compile(r"(\d)\s?ms\b(?!\s?/)")
"""A time per token stands where a speed would, and lower is better."""

_CHANGED_TOO = re.compile(
    r"\band\b(?! (?:nothing|no other))|\b(?:plus|together|along|also|then|with|upgrad\w+|updat\w+"
    r"|bump\w*|switch\w* (?:to|from)|chang(?:ing|ed (?:to|from|the))|replac\w+|mov(?:ing|ed) (?:to"
    r"|from)|quanti\w+|patch\w*|fix\w*|newer|batch\w*|concurren\w+|build|driver|version|kernel"
    r"|(?:from|to) [kvn]?\W?\d\w*)\b|[+&]",
    re.IGNORECASE,
)
"""Words of another change in the same sentence."""

_ENDS_NAME = re.compile(r"[,;:)]|\s[-–—]\s|\s\((?=[-+−]?\d)|\s(?:is|was|are|were|which|that)\s")
_FROM = re.compile(r"\bfrom\W*$")
_ARTICLES = set(words("a an the our my its this that model head heads support"))

_SAYS_NOTHING = set(
    words(
        "i get got see it is was were runs ran at only about around roughly just now the same "
        "prompt speed me gives gave then we i'm getting up down"
    )
)
"""Words between two speeds that tell nothing apart."""

_BETWEEN_ITEMS = re.compile(r"\s*(?:[,;]|\bvs\b\.?|\bversus\b|\band\b)\s*", re.IGNORECASE)
_ITEM = re.compile(
    r"(?P<name>[A-Za-z][^,;:()]{0,40}?)\s(?:is |at |gives |= ?)?[~≈]?"
    r"(?P<value>\d{1,6}(?:\.\d{1,4})?)\s?"
    r"(?P<unit>tok(?:en)?s?/s(?:ec)?|t/s|tps)?(?:\s?\([^()]{0,40}\))?\W*$",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"\b(?:measured?|gets?|got|gives?|gave|sees?|saw|is|are|was|were|has|have|runs?)\s"
)
_OF_ANOTHER = re.compile(
    r"\b(?:k|n|max|depth|draft(?:ed|s)?|tokens?|len(?:gth)?|batch|bs|concurrency|accept\w*|rate|steps?"
    r"|top|tp|size|speedup|gain|tau|layers?|heads?|version|runs?|context|ctx)$",
    re.IGNORECASE,
)
"""What a number without a unit may count."""

_CLASS = re.compile(
    r"\b(?:on|for|in|at)\s+((?:[a-z][\w-]*\s){0,3}?(?:[a-z][\w-]*|(?:batch|bs|concurrency)\s?\d+))"
    r"(?=\s?(?:[,;:.)]|~?\d|$|from\b|it\b))",
    re.IGNORECASE,
)
"""What a clause is about: `on prose`, `for code generation`, `at batch 8`."""

_LOAD = re.compile(
    r"(?:batch|bs|concurrency|users?|context|ctx|streams?)\W*\d+|\d+[k]?\s(?:users|streams|tokens)"
)
_PARAGRAPH_ENDS = re.compile(r"^\s*(?:[#|>]|[-*•+]\s|\d+[.)]\s|```|~~~|$)")

AGREES = math.log(1.06)
"""A stated gain is rounded to a percent or to a tenth of a factor."""


def told_in_sentence(sentence: str) -> list[tuple[str, str, str]]:
    """(class, arm, its speed) of the runs that a sentence compares; empty for any other."""
    pair = speeds_in_sentence(sentence) or _items(sentence)
    return [("", *arm) for arm in pair] if pair else _clauses(sentence)


def _items(sentence: str) -> list[tuple[str, str]]:
    """Three runs or more, each named right before its speed, one of them without speculation."""
    found = [_ITEM.match(piece) for piece in _BETWEEN_ITEMS.split(sentence.rpartition(": ")[2])]
    items = [item for item in found if item]
    units = [item.group("unit") for item in items if item.group("unit")]
    said = [_VERB.split(item.group("name"))[-1].strip() for item in items]
    states = [named(name).state for name in said]
    if len(items) < max(3, len(found)) or not units or not set(states) <= {ON, OFF, WORD}:
        return []
    plain = [name for name, state in zip(said, states, strict=True) if state != ON]
    apart = any(unlike(plain[0], name) or named(name).versioned for name in said) if plain else True
    if len(plain) != 1 or len(set(said)) < len(said) or apart or several(sentence):
        return []
    if _NOT_MEASURED.search(sentence) or is_planned(sentence) or len(sentence) > LONGEST_SENTENCE:
        return []
    if any(_OF_ANOTHER.search(item.group("name")) for item in items if not item.group("unit")):
        return []
    return [
        (name, f"{item.group('value')} {units[0]}") for name, item in zip(said, items, strict=True)
    ]


def _clauses(sentence: str) -> list[tuple[str, str, str]]:
    """Two pairs of speeds, each in a clause of its own that names its class."""
    values = [m for m in _SPEED.finditer(sentence) if _is_speed(m, sentence)]
    units = [m.group("unit") for m in values if m.group("unit")]
    if len(values) != 4 or not units:
        return []
    joint = re.search(r"[;,]|\band\b", sentence[values[1].end() : values[2].start()])
    cut = values[1].end() + (joint.start() if joint else 0)
    told: list[tuple[str, str, str]] = []
    for clause in (sentence[:cut], sentence[cut:]) if joint else ():
        klass = [found for found in _CLASS.findall(clause) if not named(found).state]
        told += [(klass[0], *arm) for arm in speeds_in_sentence(clause, units[0])] if klass else []
    return told if len(told) == len({(klass, arm) for klass, arm, _ in told}) == 4 else []


def speeds_in_sentence(sentence: str, unit: str = "") -> list[tuple[str, str]]:
    """(arm, speed) of the run without speculation and of the run with it; empty if the sentence
    does not give both.

    unit: of the speeds, if the sentence gives none.
    """
    if len(sentence) > LONGEST_SENTENCE or _NOT_MEASURED.search(sentence):
        return []
    if is_planned(sentence):
        return []
    if _PER_TOKEN.search(sentence):
        sentence, unit = _MS.sub(r"\1 tok/s", sentence), "ms/token"
    values = [m for m in _SPEED.finditer(sentence) if _is_speed(m, sentence)]
    units = [m.group("unit") for m in values if m.group("unit")] or [unit]
    if len(values) != 2 or not units[0]:
        return []
    first, second = values
    pieces = (
        sentence[: first.start()],
        sentence[first.end() : second.start()],
        sentence[second.end() :],
    )
    names = _names(*pieces)
    versioned = names and any(named(name).versioned for name in names)
    if names is None or versioned or _unlike(sentence, *pieces):
        return []
    said = "ms/token" if unit == "ms/token" else units[0]
    arms = [(name, f"{m.group('value')} {said}") for name, m in zip(names, values, strict=True)]
    arms.sort(key=lambda arm: named(arm[0]).state == ON)
    return arms if _agrees(sentence, arms) else []


def sentences(lines: Sequence[str]) -> Iterator[str]:
    """The sentences of prose, without marks of Markdown; a paragraph may stand in several lines."""
    paragraph = ""
    for line in [*lines, ""]:
        if _PARAGRAPH_ENDS.match(line):
            if len(paragraph) <= LONGEST_PARAGRAPH and "|" not in paragraph:
                yield from _END.split(unit_first(" ".join(map(bare, paragraph.split("\n")))))
            paragraph = ""
        paragraph += re.sub(r"^[\s>#*•+-]{0,12}", "", line[:LONGEST_PARAGRAPH]) + "\n"


def _is_speed(match: re.Match[str], sentence: str) -> bool:
    """A number with its unit, or one right before the words that name its run."""
    before, after = sentence[: match.start()], sentence[match.end() :]
    steps = bool(_FROM.search(before)) and bool(re.match(r"\s*to\s~?\d", after))
    return bool(match.group("unit")) or steps or bool(_UNITLESS.match(after))


def _names(before: str, between: str, after: str) -> tuple[str, str] | None:
    """The names of both values: each stands before its value, or each behind it, or one each way.
    None if a name may hold more than is understood."""
    lead = _trimmed(_JOINT.split(before.rstrip(" ,;:-–—=~≈("))[-1])
    inner = [_trimmed(part) for part in _JOINT.split(between) if part.strip(" (),;:–—-")]
    rest = _ENDS_NAME.split(after, maxsplit=1)[0]
    if len(inner) > 2 or re.search(r"\b(?:and|plus)\b|[+&]", rest):
        return None
    rest = _trimmed(rest)
    steps = re.fullmatch(r"\W*(?:to|->|→)\W*", between)
    told_from = _FROM.search(before)
    if steps and (told_from or "to" not in between):  # without "from" it is a range
        switched = switched_in(_FROM.sub("", before), after)
        if switched:
            return switched
    changed = told_from and steps
    if changed and _state(rest) == ON and not named(after).versioned and not is_drafter(before):
        return _pair("no speculation", rest)
    said = [part for part in inner if not _says_nothing(part)]
    named_parts = [part for part in (lead, *said, rest) if _state(part)]
    if len(named_parts) != 2 or (said and not all(map(_state, said))):
        return None
    return _pair(*named_parts)


def switched_in(*texts: str) -> tuple[str, str] | None:
    """The names of the runs before and after, if texts say that speculation was switched and speak
    of no other change."""
    for text in texts:
        match = _SWITCHED.search(text)
        if match is None:
            continue
        what = match.group("what").strip()
        verb = match.group().lower()
        side = f"{match.group('side') or ''}{match.group('behind') or ''}".strip().lower()
        if re.match("turn|switch", verb) and not side:
            continue
        others = [text[: match.start()], text[match.end() :], *(t for t in texts if t is not text)]
        rest = {word.lower() for word in named(what).rest.split()} - _ARTICLES
        changed_too = any(map(_CHANGED_TOO.search, others)) or several(" ".join(texts))
        if _state(what) != ON or rest or changed_too:
            return None
        off = bool(match.group("off")) or side == "off"
        return (what, "no speculation") if off else ("no speculation", what)
    return None


def _unlike(sentence: str, before: str, between: str, after: str) -> list[str]:
    """What else may set the values apart: two engines, machines or precisions in the sentence, or a
    size of the model."""
    head, *tail = _JOINT.split(between, maxsplit=1)
    return several(sentence) or unlike(f"{before} {head}", f"{' '.join(tail)} {after}")


def _says_nothing(text: str) -> bool:
    return set(re.findall(r"[a-z']+", text.lower())) <= _SAYS_NOTHING


def _state(text: str) -> str:
    """The state of a name; a bare `with it` or `without` refers to the other's drafter."""
    state = named(text).state
    if state == SILENT and _REFERENCE.match(text):
        return "reference"
    return state if state in (ON, OFF, WORD) else SILENT


def _pair(first: str, second: str) -> tuple[str, str] | None:
    names = [first, second]
    if len({tuple(_LOAD.findall(name.lower())) for name in names}) > 1:
        return None
    states = [_state(name) for name in names]
    for place, state in enumerate(states):
        if state == "reference":
            off = re.search(r"without|w/o", names[place], re.IGNORECASE)
            names[place] = "no speculation" if off else "speculation"
            states[place] = OFF if off else ON
    told = {ON if state == ON else OFF for state in states}
    short = all(len(name) <= LONGEST_NAME for name in names)
    return (names[0], names[1]) if told == {ON, OFF} and short else None


def _trimmed(text: str) -> str:
    found = re.search(r"\b(?:with|without|w/o?|no|using)\b.*", text, re.IGNORECASE | re.DOTALL)
    name, _, remark = (found.group() if found else text).partition(" (")
    name = name.strip(" .,;:()[]-–—")
    if is_drafter(remark):
        name = f"{name} ({remark.partition(')')[0]})"
    while len(spoken := name.split()) > 1 and spoken[-1].lower() in _SAYS_NOTHING:
        name = " ".join(spoken[:-1])
    return name


def _agrees(sentence: str, arms: list[tuple[str, str]]) -> bool:
    """Whether a gain or a loss that the sentence states is that of its speeds."""
    base, arm = (quantity(speed) for _, speed in arms)
    if not base or not arm or base.value <= 0 or arm.value <= 0:
        return False
    measured = math.log(arm.value / base.value) * (-1 if arm.unit == "ms/token" else 1)
    claims = [
        float(n) / 100 for n in re.findall(r"(\d+(?:\.\d+)?)\s?%(?!\s*(?:of|accept))", sentence)
    ]
    sizes = [math.log1p(claim) for claim in claims]
    sizes += [math.log1p(-claim) for claim in claims if claim < 1]
    factor = ratio_of(sentence) if not claims else None
    sizes += [math.log(factor), -math.log(factor)] if factor else []
    return not sizes or any(abs(size - measured) < AGREES for size in sizes)
