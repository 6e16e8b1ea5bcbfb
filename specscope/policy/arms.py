"""The arms of an experiment: the name of each in a policy, and its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specscope.evaluate.experiment.blocks import arm_k
from specscope.policy.table import Cell, GateTable, read_table
from specscope_hook.gate import CURRENT


@dataclass(frozen=True, slots=True)
class PolicyArm:
    """One arm. The names `k0`, `k4` and `current` define their tables.

    cells: for an arm that changes the table in force, cells that precede it. table: for an arm with
    its own table, that table.
    """

    name: str
    cells: tuple[Cell, ...] = ()
    table: GateTable | None = None

    @property
    def has_table(self) -> bool:
        """Whether draft lengths may differ between its requests."""
        return arm_k(self.name) is None

    @property
    def follows_current(self) -> bool:
        """Whether the table in force decides some of its draft lengths."""
        return self.table is None and self.has_table

    def runs(self, in_force: GateTable) -> GateTable:
        """The table that the arm runs, given the table in force."""
        if self.table is not None:
            return self.table
        k = arm_k(self.name)
        return in_force.with_first(self.cells) if k is None else GateTable((), k)

    def as_json(self) -> dict[str, Any]:
        """The JSON value in a policy."""
        body: dict[str, Any] = {"name": self.name}
        if self.table is not None:
            return body | self.table.as_json()
        return body | ({"cells": [cell.as_json() for cell in self.cells]} if self.cells else {})


def table_of_arm(policy: Mapping[str, Any], name: str) -> GateTable | None:
    """The table of an arm of a policy; None if the policy does not define it.

    Raises UsageError if the table cannot be read.
    """
    for raw in policy.get("arms", []):
        if not isinstance(raw, dict) or raw.get("name") != name:
            continue
        if raw.get("table") is not None:
            return read_table({"table": raw["table"], "default_k": raw.get("default_k", 0)})
        cells = read_table({"table": raw.get("cells") or []}).cells
        if cells or name == CURRENT:
            return PolicyArm(CURRENT, cells).runs(read_table(policy))
        k = raw["k"] if type(raw.get("k")) is int else arm_k(name)
        return None if k is None else GateTable((), k)
    return None
