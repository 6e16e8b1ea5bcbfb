"""The interface between the sidecar and a live source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specscope_agent.source import Source
from specscope_hook.ring import Cursor

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that are missing from the engine's output; see `Losses.add`."""

    table: str
    count: int
    detail: str
    first_seq: int | None = None
    """Of a record that has a number: a request that is lost takes one."""


@dataclass(frozen=True, slots=True)
class Harvest:
    """Rows for one batch, and the position in the engine's output after them.

    boot: the boot row of this start of the engine; None while it is unknown
    rows: by table, each row by stored column name
    """

    source: Source
    boot: Row | None
    cursor: Cursor
    rows: Mapping[str, Sequence[Row]]
    losses: Sequence[Lost]
    ended: bool = False
    """Whether the engine has ended on purpose, with nothing left behind."""


class LiveSource(Protocol):
    """One followed engine.

    Record numbers depend only on the engine's output, so a second reading from its start gives
    equal numbers. A restarted sidecar therefore asks the spool for its cursor and skips earlier
    records.
    """

    name: str
    """For the sidecar's log and its health page."""
    replica: str

    @property
    def current(self) -> Source | None:
        """The start of the engine that this source follows; None while it is unknown."""

    @property
    def missing(self) -> str:
        """Why requests are missing, judged by the output read so far; "" if none are."""

    def poll(self, cursor_of: Callable[[Source], Cursor]) -> Harvest | None:
        """The next batch, repeated until it is `kept`. None without new output.

        cursor_of: returns the spool's position in a start of the engine

        Raises OSError if the engine's output cannot be read.
        """

    def kept(self) -> None:
        """Confirm that the last harvest is stored."""

    def close(self) -> None:
        """Close files and connections."""
