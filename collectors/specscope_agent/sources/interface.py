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
    """Records that the engine's output does not yield; see `Losses.add`."""

    table: str
    count: int
    detail: str
    first_seq: int | None = None
    """Of a record that has a number: a request that is lost takes one."""


@dataclass(frozen=True, slots=True)
class Harvest:
    """Rows for one batch, and how far the engine's output has been read for them.

    boot: the Boot row of this start of the engine; None while its facts are not known
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
    """One engine that is followed.

    Record numbers follow from the engine's output alone: whoever reads the same output from its
    start gives each record the same number. A restarted sidecar therefore asks the spool for its
    cursor and leaves out what lies before it.
    """

    name: str
    """For the sidecar's log and its health page."""
    replica: str

    @property
    def current(self) -> Source | None:
        """The start of the engine that is being followed."""

    @property
    def missing(self) -> str:
        """What keeps requests from being stored, as far as the output has been read; or ""."""

    def poll(self, cursor_of: Callable[[Source], Cursor]) -> Harvest | None:
        """The next batch; the same again until it is `kept`. None while nothing is new.

        cursor_of: how far the spool has come with a start of the engine

        Raises OSError when the engine's output cannot be read.
        """

    def kept(self) -> None:
        """The harvest that was given last is safe."""

    def close(self) -> None:
        """Give back files and connections."""
