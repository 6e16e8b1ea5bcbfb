"""The arms of an experiment: what each is called in a policy, and the table that it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specscope.evaluate.experiment.blocks import arm_k
from specscope.policy.table import Cell, GateTable, read_table
from specscope_hook.gate import CURRENT


@dataclass(frozen=True, slots=True)
class PolicyArm:
    """One arm. `k0`, `k4` and `current` say by their names what they run.

    cells: put before the table in force, for an arm that changes it. table: all that the arm runs,
    for an arm with a table of its own.
    """

    name: str
    cells: tuple[Cell, ...] = ()
    table: GateTable | None = None

    @property
    def has_table(self) -> bool:
        """Whether it may give different requests different draft lengths."""
        return arm_k(self.name) is None

    @property
    def follows_current(self) -> bool:
        """Whether the table in force decides some of its draft lengths."""
        return self.table is None and self.has_table

    def runs(self, in_force: GateTable) -> GateTable:
        """The table that it runs beside a table in force."""
        if self.table is not None:
            return self.table
        k = arm_k(self.name)
        return in_force.with_first(self.cells) if k is None else GateTable((), k)

    def as_json(self) -> dict[str, Any]:
        """As a policy writes it."""
        body: dict[str, Any] = {"name": self.name}
        if self.table is not None:
            return body | self.table.as_json()
        return body | ({"cells": [cell.as_json() for cell in self.cells]} if self.cells else {})


def table_of_arm(policy: Mapping[str, Any], name: str) -> GateTable | None:
    """The table that an arm of a policy runs; None if the policy does not say.

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
