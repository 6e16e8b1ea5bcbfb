"""What an arm's name and settings say about its role."""

from __future__ import annotations

import itertools
import re

_WORDS = re.compile(r"[a-z]+\d*|\d+")
_TARGET_ONLY = {
    "none", "baseline", "base", "off", "vanilla", "nospec", "target", "ar", "autoregressive",
    "without", "disabled", "plain", "clean", "false", "nodraft", "nomtp", "unassisted",
}  # fmt: skip
_NEGATED = {
    "spec",
    "sd",
    "speculation",
    "speculative",
    "draft",
    "drafter",
    "mtp",
    "eagle",
    "eagle3",
}
_IN_ENGINE = re.compile(r"(?:^|[^a-z0-9])k[=_]?0(?:$|[^0-9])")
_K = re.compile(r"(?:^|[^a-z0-9])k[=_]?(\d{1,2})(?:$|[^0-9])")


def role_of(name: str, k: int | None) -> str:
    """`target_only`, `k0`, `speculative` or `unknown` from a name such as `no_spec` or `eagle_k3`.

    k: the draft length in a column of its own, if there is one.
    """
    text = name.strip().lower().replace("w/o", "without ")
    words = _WORDS.findall(text)
    if _IN_ENGINE.search(text):
        return "k0"
    if set(words) & _TARGET_ONLY or text in ("0", "no"):
        return "target_only"
    if any(a in ("no", "w", "wo", "non") and b in _NEGATED for a, b in itertools.pairwise(words)):
        return "target_only"
    if k == 0:
        return "target_only"
    if k:
        return "speculative"
    return "unknown"


def k_of(name: str) -> int | None:
    """The draft length that a name states (`static_k3`), or None."""
    match = _K.search(name.strip().lower())
    return int(match.group(1)) if match else None
