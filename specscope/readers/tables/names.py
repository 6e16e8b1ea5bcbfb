"""What an arm's name and settings say about its role."""

from __future__ import annotations

import re
from itertools import pairwise

_WORDS = re.compile(r"[a-z]+\d*|\d+")
_TARGET_ONLY = {
    "none", "baseline", "vanilla", "nospec", "specoff", "autoregressive", "without", "nodraft",
    "nomtp", "unassisted", "unspeculated", "nospeculation", "off", "disabled", "false",
}  # fmt: skip
_WEAK = {"base", "target", "ar", "plain", "clean", "reference", "control", "original", "standard"}
"""Words that mean target-only alone, but not beside a drafter's name (`eagle_base`)."""

_DRAFTERS = {
    "eagle", "eagle2", "eagle3", "mtp", "nextn", "ngram", "medusa", "draft", "drafter", "lookahead",
    "lookup", "suffix", "dflash", "dspark", "spec", "sd", "speculation", "speculative",
}  # fmt: skip
_IN_ENGINE = re.compile(r"(?:^|[^a-z0-9])k[=_]?0(?:$|[^0-9])")
_K = re.compile(r"(?:^|[^a-z0-9])(?:k|gamma|steps)\s?[=_:]?\s?(\d{1,2})(?:$|[^0-9])")
_OPTION = re.compile(
    r"(?:^|[^a-z0-9])(?:n[-_ ]?max|draft[-_ ]max|num[-_]spec(?:ulative)?[-_]tokens|depth|mtp|"
    r"draft|num[-_]steps)\s?[=:_ ]?\s?(\d{1,2})(?:$|[^0-9.a-z])"
)
"""An engine's own option or a drafter with its length behind it: `n_max=3`, `MTP 2`, `draft_1`."""


def role_of(name: str, k: int | None) -> str:
    """`target_only`, `k0`, `speculative` or `unknown` from a name such as `no_spec` or `eagle_k3`.

    k: the draft length in a column of its own, if there is one.
    """
    text = name.strip().lower().replace("w/o", "without ")
    words = _WORDS.findall(text)
    if _IN_ENGINE.search(text):
        return "k0"
    found = set(words)
    if {"on", "off"} <= found:
        found.discard("off")  # which of several switches is off, the name does not say
    if found & _TARGET_ONLY or text in ("0", "no"):
        return "target_only"
    if found & _WEAK and not found & _DRAFTERS:
        return "target_only"
    if any(a in ("no", "non", "wo") and b in _DRAFTERS for a, b in pairwise(words)):
        return "target_only"
    if k == 0:
        return "target_only"
    if k:
        return "speculative"
    return "unknown"


def k_of(name: str) -> int | None:
    """The draft length that a name states (`static_k3`, `--spec-draft-n-max 2`), or None."""
    text = name.strip().lower()
    match = _K.search(text) or _OPTION.search(text)
    return int(match.group(1)) if match else None
