"""Tables of llama-bench and of clients that print like it: speeds of prompt passes of n tokens
(`pp 3`) and of lone steps (`tg 128`).

llama-bench runs no speculation. Its pass of n tokens costs as much as verifying n tokens, so its
table compares verification with one step. A client of a server (llama-benchy) has no columns of the
model's file; the line above names the server's setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from specscope.readers.records import Arm, Finding, Record
from specscope.readers.tables.arm_roles import Sign, decided
from specscope.readers.tables.cells import quantity
from specscope.readers.tables.names import k_of
from specscope.readers.tables.shape import arm_above
from specscope.readers.tables.table import Table

_TEST = re.compile(r"^(pp|tg)\s*(\d{1,6})(?:\s*@\s*d\s*(\d+))?(?:\s*\(c(\d{1,4})\))?$")
_OF_FILES = {"size", "params", "backend", "ngl"}
LONGEST_VERIFIED = 64
"""Longer passes are prompts: no engine verifies so many tokens of one sequence at once."""


def is_llama_bench(table: Table) -> bool:
    """Whether the table has llama-bench's columns and tests."""
    return {"test", "t_per_s"} <= set(table.names) and any(
        _TEST.match(row.get("test", "")) for row in table.rows
    )


def speeds(input: str, table: Table) -> Iterator[Record]:
    """The speeds of a server, or each model's target-only speed with its cost of verification."""
    yield from _of_files(input, table) if _OF_FILES & set(table.names) else _of_server(input, table)


def _of_server(input: str, table: Table) -> Iterator[Arm]:
    above = arm_above(table)
    role, basis = decided(Sign(above))
    for row in table.rows:
        test, speed = _TEST.match(row.get("test", "")), quantity(row.get("t_per_s"))
        if test is None or speed is None or speed.value <= 0 or test.group(1) != "tg":
            continue
        said = {"label": row.get("model"), "output_tokens": test.group(2)}
        said |= {"context": test.group(3), "concurrency": test.group(4)}
        conditions = {name: value for name, value in said.items() if value}
        k = k_of(above) if role == "speculative" else None
        metrics = {"throughput_tok_s": speed.value}
        yield Arm(
            input, above or "server", role, k, conditions, metrics, {"scope": "blocks"}, basis
        )


def _of_files(input: str, table: Table) -> Iterator[Record]:
    steps: dict[str, float] = {}
    passes: dict[str, dict[int, float]] = {}
    for row in table.rows:
        test, speed = _TEST.match(row.get("test", "")), quantity(row.get("t_per_s"))
        if test is None or speed is None or speed.value <= 0 or test.group(3):
            continue
        model, tokens = row.get("model", ""), int(test.group(2))
        if test.group(1) == "tg":
            steps[model] = 1000 / speed.value
        elif 0 < tokens <= LONGEST_VERIFIED:
            passes.setdefault(model, {})[tokens] = 1000 * tokens / speed.value
    for model, step in steps.items():
        metrics = {"throughput_tok_s": 1000 / step, "tpot_ms": step}
        yield Arm(input, model, "target_only", None, {}, metrics)
        own = sorted(passes.get(model, {}).items())
        curve = {n: round(ms / step, 3) for n, ms in own if n > 1}
        if curve:
            told = ", ".join(f"{n} tokens {cost:.2f}" for n, cost in list(curve.items())[:8])
            yield Finding(
                "VERIFY_NOT_ONE_STEP",
                f"{model}: verifying costs, in target-only steps of {step:.2f} ms: {told}; a draft "
                "of k is verified by a pass of k + 1",
                {"step_ms": round(step, 3), "steps_by_tokens": curve},
            )
