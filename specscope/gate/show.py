"""Tables, recommendations and differences as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from specscope.assess import segments_json
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.prices import costs
from specscope.evaluate.verdict.shared_batch import ClassTimes
from specscope.evaluate.verdict.verdict import Grade, Verdict, Why
from specscope.gate.plan import untried_lines
from specscope.gate.recommend import Recommendation
from specscope.gate.rules import Move
from specscope.policy.table import SCHEMA, GateTable


def table_lines(table: GateTable) -> list[str]:
    """One line per cell, in matching order, followed by its basis."""
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
        lines += _move_lines(move, found) + _cost_lines(move.place.verdict, found)
    judged = found.assessment
    for verdict in judged.crossovers:
        lines += crossover_lines(verdict) + _cost_lines(verdict, found)
    if not found.moves and not judged.crossovers:
        lines.append("no experiment has run: there is no recommendation")
    lines += untried_lines(judged.untried)
    lines += list(found.flags)
    lines += [f"{one.class_}: {one.action} ({one.reason})" for one in found.delays]
    lines += map(class_line, found.class_times)
    lines += [f"route {name}: to its own pool" for name in found.routes]
    lines += list(found.notes)
    changes = len(found.changes)
    lines.append(f"{changes} of {len(found.moves)} cells change" if changes else "no cell changes")
    return lines


def class_line(one: ClassTimes) -> str:
    """Times of a class in a shared batch, under each arm."""
    times = ", ".join(
        f"{p95.value:.3g} under {arm}"
        + ("" if p95.low is None or p95.high is None else f" ({p95.low:.3g} to {p95.high:.3g})")
        for arm, p95 in one.tpot_p95_ms.items()
    )
    return f"{one.class_}: ms per token (95th percentile of its requests): {times}"


def crossover_lines(verdict: Verdict) -> list[str]:
    """A crossover by router: start settings for engines that cannot change k."""
    graded = "" if verdict.grade is Grade.NONE else f", {verdict.grade}"
    what = words.start_with(verdict)
    lines = [f"crossover of {verdict.segment}: {what} ({verdict.pairs} pairs{graded})"]
    return [*lines, *(f"    {line}" for line in words.explain(verdict))]


def _move_lines(move: Move, found: Recommendation) -> list[str]:
    verdict = move.place.verdict
    step = f"k = {move.old_k}" if not move.changes else f"k {move.old_k} -> {move.new_k}"
    if move.table is not None:
        every = f"k = {move.table.default_k} for all"
        step = f"the table of {verdict.arm}" if move.table.cells else every
    graded = ""
    if move.changes:
        graded = f" [{verdict.grade}, {found.confidence(move)} confidence]"
    lines = [f"{verdict.segment}: {move.rule}, {step} ({move.why}){graded}"]
    if move.evidence is not None:
        lines.append(f"    {words.estimate(move.evidence)}")
    lines += [
        f"    {words.reason(one)}" for one in verdict.reasons if one.code in (Why.CAUSE, Why.CAUSES)
    ]
    return lines


def _cost_lines(verdict: Verdict, found: Recommendation) -> list[str]:
    """Cost of each arm's tokens, if the replica has a price."""
    lines = []
    for arm, cost in costs(verdict, found.assessment.of_hour).items():
        more = "" if cost.difference is None else f", {cost.difference:+.3f} against target-only"
        lines.append(f"    {arm}: {cost.per_million:.3f} per million output tokens{more}")
    return lines


def diff_lines(old: GateTable, new: GateTable) -> list[str]:
    """Removed cells with -, added cells with +, in the order of the tables; empty if equal."""
    before, after = _cell_lines(old), _cell_lines(new)
    if before == after:
        return []
    gone = [f"- {line}" for line in before if line not in after]
    come = [f"+ {line}" for line in after if line not in before]
    return gone + come or ["the same cells in another order"]


def _cell_lines(table: GateTable) -> list[str]:
    """Cells with their grade only, because new numbers for the same draft length are no
    difference."""
    lines = [
        f"{cell} [{cell.basis.grade}]" if cell.basis is not None else str(cell)
        for cell in table.cells
    ]
    return [*lines, f"otherwise: k = {table.default_k}"]


def move_json(move: Move, found: Recommendation) -> Mapping[str, Any]:
    """A move of a recommendation as plain values."""
    segment, one = move.place.verdict.segment, move.evidence
    return {
        "class": segment.class_,
        "context": segment.context,
        "output": segment.output,
        "load": segment.load,
        "rule": move.rule,
        "old_k": move.old_k,
        "new_k": move.new_k,
        "arm": move.place.verdict.arm,
        "why": move.why,
        "pairs": move.place.verdict.pairs,
        "grade": move.place.verdict.grade,
        "confidence": found.confidence(move),
        "primary": move.place.verdict.primary,
        "cause_odds": [asdict(one) for one in move.place.verdict.cause_odds],
        "costs": _costs_json(move.place.verdict, found.assessment.of_hour),
        "evidence": None
        if one is None
        else {
            "arm": one.arm,
            "baseline": one.baseline,
            "ratio": one.value,
            "low": one.low,
            "high": one.high,
            "held_equal": one.held_equal,
            "raw": one.raw and {"ratio": one.raw.value, "low": one.raw.low, "high": one.raw.high},
        },
    }


def recommendation_json(found: Recommendation) -> Mapping[str, Any]:
    """A recommendation as plain values; its `table` and `default_k` can be applied as a file."""
    judged = found.assessment
    return {
        "schema": SCHEMA,
        "epoch": found.epoch,
        "segments": segments_json(judged),
        **found.new.as_json(),
        "moves": [move_json(move, found) for move in found.moves],
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
        "class_times": [
            {
                "class": one.class_,
                "tpot_p95_ms": {arm: asdict(p95) for arm, p95 in one.tpot_p95_ms.items()},
            }
            for one in found.class_times
        ],
        "notes": list(found.notes),
        "crossovers": [_crossover_json(verdict, judged.of_hour) for verdict in judged.crossovers],
        "untried": [asdict(one) for one in judged.untried],
    }


def _costs_json(verdict: Verdict, of_hour: Mapping[str, float]) -> Mapping[str, Any]:
    return {arm: asdict(cost) for arm, cost in costs(verdict, of_hour).items()}


def _crossover_json(verdict: Verdict, of_hour: Mapping[str, float]) -> Mapping[str, Any]:
    return {
        "class": verdict.segment.class_,
        "load": verdict.segment.load,
        "action": verdict.action,
        "k": verdict.k,
        "grade": verdict.grade,
        "confidence": verdict.confidence,
        "pairs": verdict.pairs,
        "metric": verdict.metric,
        "flags": list(verdict.flags),
        "reasons": [words.reason_json(one) for one in verdict.reasons],
        "costs": _costs_json(verdict, of_hour),
        "contrasts": [
            {"arm": e.arm, "baseline": e.baseline, "ratio": e.value, "low": e.low, "high": e.high}
            for e in verdict.speedups
        ],
    }
