"""Tables, recommendations and differences as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from specscope.evaluate.sentences import describe
from specscope.gate.recommend import Recommendation
from specscope.gate.rules import Move
from specscope.gate.table import GateTable


def table_lines(table: GateTable) -> list[str]:
    """A cell a line, in the order in which they are tried, and under it what it rests on."""
    lines = []
    for cell in table.cells:
        lines.append(str(cell))
        if cell.basis is not None:
            lines.append(f"    {cell.basis}")
    return [*lines, f"otherwise: k = {table.default_k}"]


def recommendation_lines(found: Recommendation) -> list[str]:
    """Every place with its rule and evidence, then flags, routes and notes."""
    lines: list[str] = []
    for move in found.moves:
        lines += _move_lines(move)
    if not found.moves:
        lines.append("no experiment has run: nothing to recommend")
    lines += list(found.flags)
    lines += [f"{one.class_}: {one.action} ({one.reason})" for one in found.delays]
    lines += [f"route {name}: to a pool of its own" for name in found.routes]
    lines += list(found.notes)
    changes = len(found.changes)
    lines.append(f"{changes} of {len(found.moves)} cells change" if changes else "no cell changes")
    return lines


def _move_lines(move: Move) -> list[str]:
    verdict = move.place.verdict
    step = f"k = {move.old_k}" if not move.changes else f"k {move.old_k} -> {move.new_k}"
    lines = [f"{verdict.segment}: {move.rule}, {step} ({move.why})"]
    if move.evidence is not None:
        lines.append(f"    {describe(move.evidence)}")
    if verdict.primary:
        lines.append(f"    primary cause of the loss: {verdict.primary}")
    return lines


def diff_lines(old: GateTable, new: GateTable) -> list[str]:
    """Cells that go with -, that come with +, in the order of the tables; empty where equal."""
    before, after = _cell_lines(old), _cell_lines(new)
    if before == after:
        return []
    gone = [f"- {line}" for line in before if line not in after]
    come = [f"+ {line}" for line in after if line not in before]
    return gone + come or ["the same cells in another order"]


def _cell_lines(table: GateTable) -> list[str]:
    """Cells with their grade alone: new numbers for the same draft length are no difference."""
    lines = [
        f"{cell} [{cell.basis.grade}]" if cell.basis is not None else str(cell)
        for cell in table.cells
    ]
    return [*lines, f"otherwise: k = {table.default_k}"]


def move_json(move: Move) -> Mapping[str, Any]:
    """A move as plain values."""
    segment, one = move.place.verdict.segment, move.evidence
    return {
        "class": segment.class_,
        "context": segment.context,
        "output": segment.output,
        "load": segment.load,
        "rule": move.rule,
        "old_k": move.old_k,
        "new_k": move.new_k,
        "why": move.why,
        "pairs": move.place.verdict.pairs,
        "grade": move.place.verdict.grade,
        "primary": move.place.verdict.primary,
        "evidence": None
        if one is None
        else {
            "arm": one.arm,
            "baseline": one.baseline,
            "ratio": one.value,
            "low": one.low,
            "high": one.high,
        },
    }


def recommendation_json(found: Recommendation) -> Mapping[str, Any]:
    """A recommendation as plain values; its `table` and `default_k` can be applied as a file."""
    return {
        "schema": "specscope.gate/1",
        "epoch": found.epoch,
        **found.new.as_json(),
        "moves": [move_json(move) for move in found.moves],
        "flags": list(found.flags),
        "routes": found.routes,
        "delays": [
            {
                "class": one.class_,
                "action": one.action,
                "allowance_ms": one.allowance_ms,
                "requests": one.requests,
                "tpot_p95_ms": {arm: asdict(p95) for arm, p95 in one.tpot_p95_ms.items()},
            }
            for one in found.delays
        ],
        "notes": list(found.notes),
    }
