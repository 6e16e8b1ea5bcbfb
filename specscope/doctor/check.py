"""One check of the doctor."""

from __future__ import annotations

from dataclasses import dataclass

STATES = ("ok", "never run", "missing", "left over", "warning", "refused", "failed")
"""By severity. The last two end the command with exit code 1."""

SEVERE = ("refused", "failed")


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its subject, its state (one of STATES), the observation and the remedy."""

    what: str
    state: str
    detail: str
    remedy: str = ""
