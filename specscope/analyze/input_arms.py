"""Whole inputs as arms: a log or scrape with speculation beside one without it.

Nobody randomised these, so they are compared only where their load and their requests look alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from specscope.analyze.pool import Pool
from specscope.analyze.result import InputInfo
from specscope.analyze.sums import Sums
from specscope.readers.records import Arm, Window
from specscope.readers.source import SEPARATOR


def arms_of_inputs(
    inputs: Sequence[InputInfo], pools: Mapping[str, Pool], scraped: Sequence[Arm], v0: set[str]
) -> list[Arm]:
    """An arm per input, if inputs of one engine differ in whether they speculate; else none.

    scraped: arms that a scrape gave (time per token); v0: inputs whose throughput cannot be used.
    """
    engines: dict[str, list[Arm]] = {}
    for info in inputs:
        if info.engine is None or info.path in v0:
            continue
        own = [arm for arm in scraped if arm.input == info.path]
        pool = pools.get(info.path)
        if not own and pool is not None:
            own = _arms(info, pool)
        engines.setdefault(info.engine, []).extend(arm for arm in own if arm.metrics)
    found: list[Arm] = []
    for arms in engines.values():
        if {"speculative", "target_only"} <= {arm.role for arm in arms}:
            found += arms
    return found


def _arms(info: InputInfo, pool: Pool) -> list[Arm]:
    """The input's arm; two where it holds a run without speculation beside one with it."""
    baseline = pool.baseline()
    name = Path(info.path).name.rpartition(SEPARATOR)[2]
    if baseline is None:
        return [_arm(info, name, pool.best())]
    return [
        _arm(info, name, pool.best()),
        _arm(info, f"{name} (no speculation)", baseline),
    ]


def _arm(info: InputInfo, name: str, sums: Sums | None) -> Arm:
    window = sums.window(Window(info.path, info.engine or "unknown")) if sums else None
    metrics: dict[str, float] = {}
    speculative = False
    if window is not None:
        speculative = bool(window.drafts or window.proposed or window.mean_length)
        if window.throughput_tok_s:
            metrics["throughput_tok_s"] = window.throughput_tok_s
        if window.running:
            metrics["running"] = window.running
    return Arm(
        info.path,
        name,
        "speculative" if speculative else "target_only",
        window.k if window and speculative else None,
        {"engine": info.engine},
        metrics,
        {"scope": "inputs"},
    )
