"""The gate table: maps class and ranges to a draft length; the first match wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from specscope.errors import UsageError
from specscope.store.buckets import Buckets
from specscope_hook.errors import PolicyError
from specscope_hook.gate import Gate

Limits = tuple[int, int | None]
"""Half-open range [low, high); high None: without end."""

MEASURED, REPLAYED = GRADES = ("measured", "replayed")

SCHEMA = "specscope.gate/1"
AXES = ("context", "output", "batch", "queue")


@dataclass(frozen=True, slots=True)
class State:
    """A sequence before a round: class, cached tokens, requested tokens, batch, queue."""

    class_: str = ""
    context: int = 0
    output: int = 0
    batch: int = 1
    queue: int = 0


@dataclass(frozen=True, slots=True)
class Basis:
    """The evidence behind a cell, for readers of the table; the hook ignores it.

    grade: measured or replayed. ratio, low, high: `arm` over `baseline`. count: number of pairs, or
    of requests of a replay. route: its class belongs in its own pool. tpot_ms: limit of the 95th
    percentile of time per output token. Unknown values are None.
    """

    grade: str
    arm: str | None = None
    baseline: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    count: int | None = None
    primary: str | None = None
    route: bool = False
    tpot_ms: float | None = None

    def __str__(self) -> str:
        said = [self.grade]
        if self.ratio is not None:
            said.append(f"{self.arm} at {self.ratio:.3f} of {self.baseline}{self._interval()}")
        if self.primary:
            said.append(f"cause of the loss: {self.primary.replace('_', ' ')}")
        if self.tpot_ms is not None:
            said.append(f"at most {self.tpot_ms:g} ms per token")
        if self.route:
            said.append("route to its own pool")
        return "; ".join(said)

    def _interval(self) -> str:
        unit = "requests" if self.grade == REPLAYED else "pairs"
        if self.low is None or self.high is None:
            return f" ({self.count} {unit})"
        return f" ({self.low:.3g} to {self.high:.3g}, {self.count} {unit})"


@dataclass(frozen=True, slots=True)
class Cell:
    """A row of the table: the range in which its k applies. None means everywhere. Equality ignores
    the basis."""

    k: int
    class_: str | None = None
    context: Limits | None = None
    output: Limits | None = None
    batch: Limits | None = None
    queue: Limits | None = None
    basis: Basis | None = field(default=None, compare=False)

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

    def within(self, other: Cell) -> Cell | None:
        """The intersection with another cell's class and ranges; None if it is empty."""
        if None not in (self.class_, other.class_) and self.class_ != other.class_:
            return None
        found = [_common(getattr(self, axis), getattr(other, axis)) for axis in AXES]
        if any(limits is not None and limits[0] == limits[1] for limits in found):
            return None
        class_ = other.class_ if self.class_ is None else self.class_
        context, output, batch, queue = found
        return Cell(self.k, class_, context, output, batch, queue, self.basis)

    def as_json(self) -> dict[str, Any]:
        """As a policy writes it."""
        ranges = {axis: getattr(self, axis) for axis in AXES}
        return {
            "class": self.class_,
            **{axis: None if limits is None else list(limits) for axis, limits in ranges.items()},
            "k": self.k,
            **({} if self.basis is None else {"basis": asdict(self.basis)}),
        }

    def __str__(self) -> str:
        said = [self.class_ or "every class"]
        said += [f"{axis} {_text(getattr(self, axis))}" for axis in AXES if getattr(self, axis)]
        return f"{', '.join(said)}: k = {self.k}"


@dataclass(frozen=True, slots=True)
class GateTable:
    """Cells in order, and the draft length if none matches."""

    cells: tuple[Cell, ...] = ()
    default_k: int = 0

    def k(self, state: State) -> int:
        """Draft length for a state."""
        for cell in self.cells:
            if cell.matches(state):
                return cell.k
        return self.default_k

    def with_first(self, cells: tuple[Cell, ...]) -> GateTable:
        """Put these cells first, and drop cells that they cover."""
        kept = [old for old in self.cells if not any(new.covers(old) for new in cells)]
        return GateTable((*cells, *kept), self.default_k)

    @property
    def k_max(self) -> int:
        """Longest draft in the table."""
        return max([self.default_k, *(cell.k for cell in self.cells)])

    def as_json(self) -> dict[str, Any]:
        """The JSON values in a policy: cells and default."""
        return {"table": [cell.as_json() for cell in self.cells], "default_k": self.default_k}


def read_table(policy: Mapping[str, Any]) -> GateTable:
    """Read the table in a policy's JSON. Raises UsageError with the fault."""
    try:
        gate = Gate.from_policy({"policy": 0, **policy})
    except PolicyError as error:
        raise UsageError(str(error)) from error
    bases = [_basis(raw.get("basis")) for raw in policy.get("table", [])]
    cells = []
    for cell, basis in zip(gate.table, bases, strict=True):
        context, output, batch, queue = (_limits(limits) for limits in cell.ranges)
        cells.append(Cell(cell.k, cell.class_, context, output, batch, queue, basis))
    return GateTable(tuple(cells), gate.default_k)


def unknown_keys(table: Mapping[str, Any]) -> list[str]:
    """Unknown names in a table's cells. The hook ignores them, so a misspelt `class` would match
    every class."""
    cells = table.get("table")
    if not isinstance(cells, list):
        return []
    said = [name for cell in cells if isinstance(cell, dict) for name in cell]
    return sorted({*said} - {"class", *AXES, "k", "basis"})


def _basis(raw: Any) -> Basis | None:
    """Read a cell's basis from a policy; unknown parts are ignored."""
    if not isinstance(raw, dict) or raw.get("grade") not in GRADES:
        return None
    kinds = {"route": bool, "count": int} | dict.fromkeys(("arm", "baseline", "primary"), str)
    return Basis(
        raw["grade"],
        **{
            name: raw[name]
            for name in Basis.__dataclass_fields__
            if name != "grade" and isinstance(raw.get(name), kinds.get(name, (int, float)))
        },
    )


def range_of(buckets: Buckets, name: str | None) -> Limits | None:
    """The values of a bucket as a half-open range; None without a bucket, or for `unknown`."""
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


def _common(one: Limits | None, other: Limits | None) -> Limits | None:
    """The intersection of two ranges; low equals high if it is empty."""
    if one is None or other is None:
        return one or other
    low = max(one[0], other[0])
    ends = [high for high in (one[1], other[1]) if high is not None]
    return low, max(low, min(ends)) if ends else None


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
