"""Decide whether an arm speculates; evidence outranks its name.

Evidence is counts, rates, draft lengths, switches and drafters. The name "baseline" makes a
target-only arm only if no evidence contradicts it. Contradictory evidence leaves the role unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specscope.readers.tables.command_lines import is_plain_command
from specscope.readers.tables.names import (
    K0,
    OFF,
    ON,
    SILENT,
    SWITCHED_OFF,
    SWITCHED_ON,
    WORD,
    is_drafter,
    named,
    speaks_only_of_speculation,
    words,
)


class Sign(NamedTuple):
    """The evidence about one arm."""

    name: str
    k: int | None = None
    """The draft length of its column."""
    switches: Sequence[str] = ()
    """Headers with their cells, of columns that switch speculation."""
    drafters: Sequence[str] = ()
    counted: bool = False
    """Its row gives accepted or proposed tokens, a rate, a length or positions above zero."""
    drafted_nothing: bool = False
    speculation: bool = False
    """The header or the line above says that "on" and "off" are about speculation."""
    drafter_column: bool = False
    """The name stands in a column of drafters."""
    models: Sequence[str] = ()
    """Models of the row, which may name a drafter with its length."""


def decided(sign: Sign) -> tuple[str, str]:
    """(role, its basis): `target_only`, `k0`, `speculative` or `unknown`."""
    name = named(sign.name)
    state = _bound(name.state, sign.speculation)
    switched = [_bound(named(text).state, True) for text in sign.switches if text]
    if state == SILENT and WORD in switched:
        state = WORD
    if sign.counted:
        return "speculative", "stated"
    if sign.drafted_nothing and state not in (OFF, WORD):
        return "k0", "stated"
    on = state == ON or ON in switched or bool(sign.k) or any(map(_is_some, sign.drafters))
    on = on or any(named(model).state == ON and named(model).k for model in sign.models)
    off = state == OFF or OFF in switched
    if on and off:
        # A name may list several switches; a column of its own decides over a word in the name.
        if OFF in switched and ON not in switched and not sign.k and state != ON:
            return "target_only", "stated"
        return ("unknown" if OFF in switched or state == OFF else "speculative"), "stated"
    if on:
        return "speculative", "stated"
    if state == SILENT and is_plain_command(sign.name):
        return "target_only", "stated"
    if state == K0:
        return "k0", "stated"
    if off or sign.k == 0:
        return "target_only", "stated"
    if sign.drafter_column and sign.name.strip().lower() in (
        "",
        "-",
        "—",
        "–",
        "none",
        "n/a",
        "null",
    ):
        return "target_only", "stated"
    if sign.drafter_column and state != WORD:
        return "speculative", "stated"
    if state == WORD and not name.versioned:
        return "target_only", "word"
    return "unknown", "stated"


def subject_is_speculation(texts: Sequence[str]) -> bool:
    """Whether a header, or else the line above, names speculation as the switched feature."""
    for text in texts[:3]:
        if not text:
            continue
        if speaks_only_of_speculation(text):
            return True
        if is_drafter(text) and named(text).state in (ON, OFF) and " on" in f" {text.lower()}":
            return False
    return False


def _bound(state: str, speculation: bool) -> str:
    if not speculation:
        return state
    return {SWITCHED_ON: ON, SWITCHED_OFF: OFF}.get(state, state)


def _is_some(drafter: str) -> bool:
    return bool(drafter.strip()) and drafter.strip().lower() not in _NO_DRAFTER


_NO_DRAFTER = {*words("- — – none n/a null no off disabled false 0 ✗ ✘ ❌ / without")}
