"""Observers and a gate from other installed packages, found by entry point.

The engine imports nothing of its observers. A package that wants to watch a served engine names a
function under the entry point group `specscope.engine_plugins`; it is given what defines the
engine and answers with what should be attached, or None.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from specscope.engine.api import Gate, Observer

GROUP = "specscope.engine_plugins"


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What defines a served engine."""

    target: str
    draft: str
    """Empty if no model drafts."""
    method: str
    """model, eagle, ngram or none."""
    k: int
    """Draft length where no gate says another."""
    k_max: int
    dtype: str
    device: str
    card: dict[str, dict[str, float | int]]
    """See model_card."""
    slots: int | None = None
    """Sequences that it runs at once, at most."""
    cache_tokens: int | None = None
    """Tokens that all sequences together may hold."""


Plugin = Callable[[EngineInfo], "tuple[Sequence[Observer], Gate | None] | None"]


def attach_plugins(info: EngineInfo, gate: Gate) -> tuple[list[Observer], Gate]:
    """All plug-ins' observers, and the last gate that one of them brought, or `gate`."""
    observers: list[Observer] = []
    for entry in entry_points(group=GROUP):
        plugin: Any = entry.load()
        answer = plugin(info)
        if answer is not None:
            found, own = answer
            observers += found
            gate = own or gate
    return observers, gate
