"""The decision table: class and ranges to a draft length, first match wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specscope.buckets import Buckets
from specscope.errors import UsageError
from specscope_hook.errors import PolicyError
from specscope_hook.gate import Gate

Limits = tuple[int, int | None]
"""Half-open range [low, high); high None: without end."""

AXES = ("context", "output", "batch", "queue")


@dataclass(frozen=True, slots=True)
class State:
    """A sequence before a round: class, tokens in its cache and asked for, batch, queue."""

    class_: str = ""
    context: int = 0
    output: int = 0
    batch: int = 1
    queue: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """Where its k applies. None: everywhere."""

    k: int
    class_: str | None = None
    context: Limits | None = None
    output: Limits | None = None
    batch: Limits | None = None
    queue: Limits | None = None

    def matches(self, state: State) -> bool:
        """Whether a state lies in the cell."""
        if self.class_ is not None and self.class_ != state.class_:
            return False
        return all(_holds(getattr(self, axis), getattr(state, axis)) for axis in AXES)

    def covers(self, other: Cell) -> bool:
        """Whether every state of another cell lies in this one."""
        if self.class_ is not None and self.class_ != other.class_:
            return False
        return all(_covers(getattr(self, axis), getattr(other, axis)) for axis in AXES)

    def as_json(self) -> dict[str, Any]:
        """As a policy writes it."""
        ranges = {axis: getattr(self, axis) for axis in AXES}
        return {
            "class": self.class_,
            **{axis: None if limits is None else list(limits) for axis, limits in ranges.items()},
            "k": self.k,
        }

    def __str__(self) -> str:
        said = [self.class_ or "every class"]
        said += [f"{axis} {_text(getattr(self, axis))}" for axis in AXES if getattr(self, axis)]
        return f"{', '.join(said)}: k = {self.k}"


@dataclass(frozen=True, slots=True)
class GateTable:
    """Cells in order, and the draft length where none matches."""

    cells: tuple[Cell, ...] = ()
    default_k: int = 0

    def k(self, state: State) -> int:
        """Draft length for a state."""
        for cell in self.cells:
            if cell.matches(state):
                return cell.k
        return self.default_k

    def with_first(self, cells: tuple[Cell, ...]) -> GateTable:
        """These cells before the others; what they cover goes."""
        kept = [old for old in self.cells if not any(new.covers(old) for new in cells)]
        return GateTable((*cells, *kept), self.default_k)

    @property
    def k_max(self) -> int:
        """Longest draft in the table."""
        return max([self.default_k, *(cell.k for cell in self.cells)])

    def as_json(self) -> dict[str, Any]:
        """The two parts of a policy that a table is."""
        return {"table": [cell.as_json() for cell in self.cells], "default_k": self.default_k}


def read_table(policy: Mapping[str, Any]) -> GateTable:
    """The table inside a policy's JSON. Raises UsageError with what is wrong with it."""
    try:
        gate = Gate.from_policy({"policy": 0, **policy})
    except PolicyError as error:
        raise UsageError(str(error)) from error
    cells = [
        Cell(cell.k, cell.class_, *(_limits(limits) for limits in cell.ranges))
        for cell in gate.table
    ]
    return GateTable(tuple(cells), gate.default_k)


def range_of(buckets: Buckets, name: str | None) -> Limits | None:
    """The values of a bucket as a half-open range; None for no bucket, or `unknown`."""
    if name is None or name not in buckets.names:
        return None
    place = buckets.names.index(name)
    low = 0 if place == 0 else buckets.edges[place - 1] + 1
    high = buckets.edges[place] + 1 if place < len(buckets.edges) else None
    return low, high


def _limits(found: tuple[float, float] | None) -> Limits | None:
    if found is None:
        return None
    low, high = found
    return int(low), None if high == float("inf") else int(high)


def _holds(limits: Limits | None, value: int) -> bool:
    return limits is None or (limits[0] <= value and (limits[1] is None or value < limits[1]))


def _covers(wide: Limits | None, narrow: Limits | None) -> bool:
    if wide is None:
        return True
    if narrow is None or wide[0] > narrow[0]:
        return False
    return wide[1] is None or (narrow[1] is not None and narrow[1] <= wide[1])


def _text(limits: Limits) -> str:
    low, high = limits
    if high is None:
        return f"from {low}"
    return f"{low}" if high == low + 1 else f"{low} to {high - 1}"
