"""Parse an arm's name: speculation, k, engine and precision.

A name is any text about an arm: a cell, a header, a heading, a file's name, a command line. It
states speculation through a drafter ("no MTP", "eagle=on"). A plain "baseline" counts only if
nothing contradicts it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from specscope.readers.tables.cells import REMEMBERED
from specscope.readers.tables.command_lines import commanded

ON, OFF, K0, WORD, SWITCHED_ON, SWITCHED_OFF, SILENT = (
    "on", "off", "k0", "word", "switched_on", "switched_off", "",
)  # fmt: skip

LONGEST_NAME = 4096
"""A command line is the longest name there is."""

LONGEST_NORMAL = 400
"""What a name says of speculation stands in so many of its first characters."""

_SAME = (
    (r"\((mtp|eagle[- ]?\d?|n-?gram|dflash|draft(?: model)?)\)(?= (?:on|off|(?:en|dis)abled)\b)",
     r"\1"),
    (r"\bn[- ]gram", "ngram"), (r"\bmulti[- ]token[- ]prediction\b", "mtp"),
    (r"\bspec(?:ulative|ulation)?(?:[-_ ]?dec(?:od(?:e|ing))?)?(?![a-z])", "spec"),
    (r"\bprompt[- ]lookup", "lookup"), (r"\bw/o(?:ut)?\b", "without "), (r"\bw/(?=[ a-z])",
    "with "),
    (r"\beagle[-_ ]?([123])\b", r"eagle\1"), (r"\bd-?flash[-_ ]?([12])\b", r"dflash\1"),
    (r"\bauto[- ]?regressive\b", "autoregressive"), (r"\bnext[- ]n\b", "nextn"),
    (r"\b(?:speed|spec)[-_ ]bench\w*", " "), (r"\btarget[-_ ](?:only|alone)\b", "autoregressive"),
    (r"\b(?:no|without) an? ", "no "), (r"\bn[- ]max\b", "nmax"),
    (r"\b(?:un-?assisted|un-?speculated)\b", "autoregressive"),
    (r"不使用|未启用|关闭|无|不开", " no "), (r"投机(?:解码|采样|推理)?|推测(?:解码|采样)?",
    " spec "),
    (r"开启|启用", " on "), (r"基线|基准", " baseline "), (r"草稿(?:模型)?", " draft "),
)  # fmt: skip
_SIGNS = (
    (re.compile(r"(?<![\w-])-(?=(?:sd|spec|mtp|eagle\d?|draft)\b(?![-_=]))"), " no "),
    (re.compile(r"(?<![\w+])\+(?=(?:sd|spec|mtp|eagle\d?|draft)\b)"), " with "),
)
"""`-SD` and `+SD`; an option has another dash or a value behind it."""

_NORMAL = tuple((re.compile(pattern, re.IGNORECASE), meant) for pattern, meant in _SAME)
_TOKEN = re.compile(r"[a-z]+(?:\d(?![\d.]*b\b)\d*)?|\d+(?:\.\d+)?[a-z]?|[✓✔✅✗✘❌]|=|:|/")
_CLAUSE = re.compile(r"[,;|()\[\]{}+&·•]|\s[-–—]\s|->|→")
_DRAFTER = re.compile(
    r"^(?:eagle\d?|mtp\d{0,2}|nextn\d?|ngram\d{0,2}|medusa\d?|hydra|draft(?:er|ers|ed|ing|s)?\d{0,2}"
    r"|lookahead|lookup|suffix|d?flash(?<=dflash)\d?|dflash\d?|dspark\d?|spec\d{0,2}|sd|specdec|pld"
    r"|dsd|spec(?:on|exec|forge)|mtpon|jacobi|kangaroo|pearl|assisted|assistant|redrafter)$"
)
_UNDRAFTED = re.compile(
    r"^(?:no(?:spec|mtp|draft|eagle|ngram|sd)\w*|(?:spec|mtp|draft|eagle\d?)off)$"
)
_NEGATIONS = {
    "no",
    "non",
    "not",
    "without",
    "wo",
    "disable",
    "disabled",
    "disabling",
    "minus",
    "zero",
}
_OFF = {"off", "disabled", "none", "false", "no", "0", "inactive", "unset", "✗", "✘", "❌"}
_ON = {"on", "enabled", "yes", "true", "✓", "✔", "✅", "active"}
_PASSED = {
    "decode", "decoding", "mode", "model", "models", "head", "heads", "tokens", "token", "is",
    "was",
    "=", ":", "n", "max", "depth", "the", "any", "a", "all", "using", "layer", "len", "length",
    "type", "nmax",
    "steps", "prediction", "draft", "num", "method", "config", "only",
}  # fmt: skip
"""Words between a drafter and what is said of it."""

_KINDS = {"adaptive", "dynamic", "auto", "async", "parallel", "tree", "overlapped", "batched"}
"""Kinds of speculation, before its name: without them it may still speculate."""

_UNSPECULATED = {"autoregressive", "vanilla", "ar", "greedyar", "nodraft", "stp"}
_BASELINE = {
    "baseline", "base", "target", "plain", "clean", "reference", "control", "original", "standard",
    "stock", "normal", "regular", "bare", "alone",
}  # fmt: skip
_STATISTICS = {"mean", "avg", "average", "median", "min", "max", "total", "draft"}
"""Before "AR" they speak of an acceptance rate, not of autoregressive decoding."""

_SERIAL = {"serial", "sequential"}

_FILLER = {
    "with", "and", "only", "run", "runs", "decoding", "decode", "mode", "model", "default",
    "native",
    "tok", "tps", "config", "flag", "arm", "test", "results", "result", "tree", "chain", "topk",
    "the", "nmax",
}  # fmt: skip
_VERSION = re.compile(
    r"#\d+|\b(?:main|master|trunk|branch|pr|commit|before|after|old|new|patched|upstream|prev(?:ious)?"
    r"|current|nightly|release|dev|build|tip|head@?)\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"
    r"|\bv\d+(?:\.\d+)+\b",
    re.IGNORECASE,
)
_PLANNED = re.compile(
    r"\b(?:project(?:ed|ion)|estimat(?:ed?|ion)|theor(?:y|etical(?:ly)?)|un-?run|untested|unmeasured"
    r"|not (?:yet )?(?:been )?(?:run|measured|tested|benchmarked)|never "
    r"run|expected|predict(?:ed|ion)"
    r"|extrapolat\w+|simulat(?:ed|ion)|hypothe\w+|planned|ideal(?:ly)?|upper[- "
    r"]bound|roofline|goals?"
    r"|tbd|to ?do|model(?:l?ed)|assum(?:ed|ing|ption)|would be|if "
    r"accepted|est\.|calculated|paper)(?!\w)"
    r"|预计|理论|估计|预期",
    re.IGNORECASE,
)
_HEADS_PLANNED = re.compile(
    r"^\W*(?:project\w+|theoretical|estimated|simulated|predicted|hypothetical|modell?ed)\b",
    re.IGNORECASE,
)
_TOTAL = re.compile(
    r"^\W*(?:(?:weighted|overall|arith\w*|geo\w*|harmonic|grand|all|the)\W+)*(?:mean|avg\.?|average"
    r"|geo-?mean|totals?|sum|overall|all|aggregate|median|combined|Σ|∑|合计|平均)"
    r"(?:\W*\(.{0,40}\)|\W+(?:of|over|across)\b.{0,40})?\W*$",
    re.IGNORECASE,
)
_K0 = re.compile(r"(?:^|(?<!top)[^a-z0-9])(?:k|gamma|steps)[\s=_:]?0(?:$|[^0-9.])")
_K = re.compile(
    r"(?:^|[^a-z0-9])(?:k|gamma|γ|steps|static|depth|n)\s?[=_:-]?\s?(\d{1,2})(?:$|[^0-9.a-z])"
)
_OPTION = re.compile(
    r"(?:n[-_ ]?max|draft[-_ ]?max|num[- ](?:spec|draft)[- ]tokens|num[- "
    r"]steps|mtp|nextn|draft(?:er)?"
    r"|ngram|lookahead|spec|dspark)"
    r"(?:['\"]?\s?[=:_-]\s?|[ (]\(?|)['\"]?(\d{1,2})(?:$|[^0-9.a-z])"
)
"""An engine's own option or a drafter with its length behind it: `n_max=3`, `MTP 2`, `draft_1`."""


def words(text: str) -> tuple[str, ...]:
    """The words of a text, for lists of names."""
    return tuple(text.split())


_FEATURES = set(
    words(
        "quantization quantized quant kv cache reuse tree kernel kernels graph graphs patch fix "
        "sampling overlap tuning padding sync pruning compile verification batching embedding "
        "sharing fusion offload warmup"
    )
)
"""Words of what works on a drafter, behind its name."""


class Name(NamedTuple):
    """The content of a name."""

    state: str
    """ON or OFF (of a drafter), K0, WORD (a bare "baseline"), SWITCHED_* ("on" alone), SILENT."""
    k: int | None
    rest: str
    """The name without the words of speculation: the class that it may hold beside the arm."""
    versioned: bool
    """It names a build, a branch or a time before and after."""


def named(text: str) -> Name:
    """Parse one name."""
    return _named(text[:LONGEST_NAME])


@lru_cache(REMEMBERED)
def _named(text: str) -> Name:
    normal = _normal(text)
    command = commanded(text)
    k = k_of(text)
    rest = _rest(text)
    versioned = bool(_VERSION.search(text))
    if command is not None:
        return Name(ON if command else OFF, k, rest, versioned)
    on = off = False
    words: set[str] = set()
    for clause in _CLAUSE.split(normal):
        tokens = _TOKEN.findall(clause)
        words |= set(tokens)
        for place, token in enumerate(tokens):
            if _UNDRAFTED.match(token):
                off = True
            elif _DRAFTER.match(token):
                negated = _negated(tokens, place)
                on |= not negated
                off |= negated
        bare = set(tokens) - _FILLER - _BASELINE - {"pure", "greedy", "s", "/", "=", ":"}
        off |= len(bare) == 1 and bare <= _UNSPECULATED
        off |= tokens[-1:] == ["ar"] and len(tokens) <= 3 and not set(tokens) & _STATISTICS
    if (on or "dsd" in words) and _K0.search(normal):  # a drafter, at length 0
        return Name(K0, 0, rest, versioned)
    if on or (k and not off):
        return Name(ON, k, rest, versioned)
    if off or words & {"autoregressive", "vanilla", "stp"}:
        return Name(OFF, None, rest, versioned)
    if _K0.search(normal):
        return Name(K0, 0, rest, versioned)
    plain = [token for token in _TOKEN.findall(normal) if token not in ("=", ":")]
    if plain in (["none"], ["without"]):
        return Name(OFF, None, rest, versioned)
    if words & _BASELINE or is_serial(text):
        if set(plain) & _OFF and set(plain) <= _BASELINE | _OFF | _FILLER:
            return Name(OFF, None, rest, versioned)
        return Name(WORD, None, rest, versioned)
    if plain and plain[-1] in _OFF and len(plain) <= 3:
        return Name(SWITCHED_OFF, None, rest, versioned)
    if plain and plain[-1] in _ON and len(plain) <= 3:
        return Name(SWITCHED_ON, None, rest, versioned)
    return Name(SILENT, None, rest, versioned)


def k_of(name: str) -> int | None:
    """The draft length that a name states (`static_k3`, `--spec-draft-n-max 2`), or None."""
    text = _normal(name)
    match = _OPTION.search(text) or _K.search(text)
    if match is None and (
        triple := re.search(r"\b(?:mtp|eagle\d?|spec) \((\d{1,2})[ ,]+\d+[ ,]+\d+\)", text)
    ):
        match = triple  # SGLang's steps, top-k and draft tokens
    return int(match.group(1)) or None if match else None


def is_serial(text: str) -> bool:
    """Whether a name says no more than that tokens came one after the other (`serial decode`)."""
    tokens = set(_TOKEN.findall(_normal(text)))
    return bool(tokens & _SERIAL) and tokens <= _SERIAL | _FILLER


def is_drafter(text: str) -> bool:
    """Whether a text names a drafter or speculation at all, on or off."""
    return any(
        _DRAFTER.match(token) or _UNDRAFTED.match(token) for token in _TOKEN.findall(_normal(text))
    )


def names_feature(text: str) -> bool:
    """Whether a text names something else than speculation that may be switched (`CUDA graphs`)."""
    return bool(set(_TOKEN.findall(_normal(text))) & _FEATURES)


def is_planned(text: str) -> bool:
    """Whether a text marks its row as not run."""
    return bool(_PLANNED.search(text))


def heads_planned(text: str) -> bool:
    """Whether a heading marks the rows below it as not run. A sentence may contain "expected"."""
    return bool(_HEADS_PLANNED.search(text)) and len(text) <= 80


def is_total(text: str) -> bool:
    """Whether a row's name is that of a mean or a sum over other rows."""
    return bool(_TOTAL.match(text)) and len(text) <= 80


def shared_rests(names: Sequence[str]) -> dict[str, str]:
    """Name to the class in it, where runs with and without speculation share the rest of their
    name."""
    read = {name: named(name) for name in names}
    bases = {r.rest for r in read.values() if r.state in (OFF, WORD) and r.rest}
    others = [r.rest for r in read.values() if r.state not in (OFF, WORD)]
    shared = {rest for rest in bases if any(_holds(other, rest) for other in others)}
    if not shared:
        return {}
    classes = {}
    for name, reading in read.items():
        own = [rest for rest in shared if _holds(reading.rest, rest)]
        classes[name] = max(own, key=len) if own else reading.rest
    return {name: klass for name, klass in classes.items() if klass}


def _holds(text: str, part: str) -> bool:
    return set(part.lower().split()) <= set(text.lower().split())


def _normal(text: str) -> str:
    return _normalised(text[:LONGEST_NORMAL])


@lru_cache(REMEMBERED)
def _normalised(text: str) -> str:
    text = text.lower().replace("_", " ")
    for pattern, meant in (*_SIGNS, *_NORMAL):
        text = pattern.sub(meant, text)
    return " ".join(text.split())


def _negated(tokens: Sequence[str], place: int) -> bool:
    """Whether a drafter is named as off, and not only a feature of it ("no draft quantization",
    "adaptive speculation disabled", "EAGLE no tree")."""
    ahead = [token for token in tokens[place + 1 :] if not _is_passed(token)]
    feature = (ahead[:1] and ahead[0] in _FEATURES) or (
        tokens[place - 1 : place] and (tokens[place - 1] in _KINDS)
    )
    for token in reversed(tokens[max(place - 4, 0) : place]):
        if token in _NEGATIONS:
            return not feature
        if not _is_passed(token):
            break
    for number, token in enumerate(tokens[place + 1 : place + 5], start=place + 2):
        if token in _OFF:
            return not feature and (token != "no" or all(map(_is_passed, tokens[number:])))
        if not _is_passed(token):
            break
    return False


def _is_passed(token: str) -> bool:
    return token in _PASSED or bool(_DRAFTER.match(token))


def _rest(text: str) -> str:
    kept: list[str] = []
    after_drafter = False
    for word in re.findall(r"[^\s,;|()\[\]+]+", text[:LONGEST_NORMAL]):
        tokens = _TOKEN.findall(_normal(word))
        numeric = all(re.match(r"^[\d.]+$|^=$|^:$", token) for token in tokens)
        drops = (
            bool(tokens)
            and all(
                _DRAFTER.match(t)
                or _UNDRAFTED.match(t)
                or t in _WORDS_OF_ARMS
                or (t in _PASSED and any(map(_DRAFTER.match, tokens)))
                or re.match(r"^k\d*$|^[\d.]+$|[=:/]", t)
                for t in tokens
            )
            and (not numeric or after_drafter)
        )
        after_drafter = drops
        if not drops and (tokens or re.search(r"\w", word)):
            kept.append(word.strip(" .:-–—*`"))
    return " ".join(word for word in kept if word)


_WORDS_OF_ARMS = _NEGATIONS | _OFF | _ON | _UNSPECULATED | _BASELINE | _FILLER


def speaks_only_of_speculation(text: str) -> bool:
    """Whether a header or caption is about speculation and nothing else that could be switched."""
    tokens = [token for token in _TOKEN.findall(_normal(text)) if token not in ("=", ":", "/")]
    drafters = [token for token in tokens if _DRAFTER.match(token)]
    known = (
        _PASSED
        | _OFF
        | _ON
        | _FILLER
        | _NEGATIONS
        | {"comparison", "benchmark", "speed", "throughput", "s"}
    )
    return bool(drafters) and all(
        _DRAFTER.match(t) or t in known or t[:1].isdigit() for t in tokens
    )
