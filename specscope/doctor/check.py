"""One answer of the doctor."""

from __future__ import annotations

from dataclasses import dataclass

STATES = ("ok", "never run", "missing", "left over", "warning", "refused", "failed")
"""By severity. The last two end the command with exit code 1."""

SEVERE = ("refused", "failed")


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, its state (one of STATES), what was seen, and what to do."""

    what: str
    state: str
    detail: str
    remedy: str = ""
