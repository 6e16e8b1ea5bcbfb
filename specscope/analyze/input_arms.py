"""Whole inputs as arms: a log or scrape with speculation, and another without it.

They are not randomised, so they are compared only if their load and requests are similar. An input
without drafts is target-only if its command line, name or heading says so. It is also target-only
if its engine prints speculation figures in every line whenever it speculates. Missing figures of
other engines are no evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from specscope.analyze.pool import Pool
from specscope.analyze.result import InputInfo
from specscope.analyze.sums import Sums
from specscope.readers.records import Arm, Finding, Window
from specscope.readers.source import SEPARATOR
from specscope.readers.tables.arm_roles import Sign, decided
from specscope.readers.tables.names import ON, named

_OUTSPOKEN = ("sglang", "tabbyapi", "prometheus", "lm studio")
"""Engines and formats that give a figure of speculation wherever it runs."""


def never_used(
    inputs: Sequence[InputInfo], pools: Mapping[str, Pool]
) -> Iterator[tuple[str, Finding]]:
    """(input, finding) for each that configures a drafter, decodes, and shows no draft."""
    for info in inputs:
        pool = pools.get(info.path)
        if info.speculates and pool is not None and not _drafted(pool):
            method = f" ({info.method})" if info.method else ""
            yield (
                info.path,
                Finding(
                    "DRAFTER_NEVER_USED",
                    f"speculation is configured{method} and no draft is in the input: it is "
                    f"neither 0 % "
                    "acceptance nor a run without speculation",
                    {"method": info.method, "k": info.k},
                ),
            )


def arms_of_inputs(
    inputs: Sequence[InputInfo], pools: Mapping[str, Pool], scraped: Sequence[Arm], v0: set[str]
) -> tuple[list[Arm], list[Finding]]:
    """An arm per input, if some inputs of one engine speculate and others do not; else none.

    scraped: arms from scrapes (time per token). v0: inputs with unusable throughput.
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
    silent: list[str] = []
    for arms in engines.values():
        roles = {arm.role for arm in arms}
        if {"speculative", "target_only"} <= roles:
            found += arms
        elif "speculative" in roles and "unknown" in roles:
            silent += [arm.arm for arm in arms if arm.role == "unknown"]
    said = (
        f"{', '.join(silent[:4])}: no draft is in it, and nothing says that speculation was off. "
        f"If it "
        "was, give its log from the start, or call the file `no_spec`"
    )
    return found, [Finding("ARMS_NOT_RECOGNISED", said, {"arms": silent})] if silent else []


def _drafted(pool: Pool) -> bool:
    return any(window.drafts or window.proposed or window.mean_length for window in pool.windows())


def _arms(info: InputInfo, pool: Pool) -> list[Arm]:
    """The input's arm, or two if it has runs with and without speculation."""
    baseline = pool.baseline()
    name = Path(info.path).name.rpartition(SEPARATOR)[2]
    if baseline is None or baseline is pool.best():
        return [_arm(info, name, pool.best(), stated=baseline is not None)]
    return [
        _arm(info, name, pool.best()),
        _arm(info, f"{name} (no speculation)", baseline, stated=True),
    ]


def _arm(info: InputInfo, name: str, sums: Sums | None, *, stated: bool = False) -> Arm:
    """stated: the input marks its windows as decoded without speculation."""
    window = sums.window(Window(info.path, info.engine or "unknown")) if sums else None
    metrics: dict[str, float] = {}
    speculative = False
    if window is not None:
        speculative = bool(window.drafts or window.proposed or window.mean_length)
        if window.throughput_tok_s:
            metrics["throughput_tok_s"] = window.throughput_tok_s
        if window.running:
            metrics["running"] = window.running
    role, basis = _role(info, name, stated) if not speculative else ("speculative", "stated")
    return Arm(
        info.path,
        name,
        role,
        (window.k if window else None) or info.k if role == "speculative" else None,
        {"engine": info.engine},
        metrics,
        {"scope": "inputs"},
        basis,
    )


def _role(info: InputInfo, name: str, stated: bool) -> tuple[str, str]:
    """(role, its basis) of an input without drafts."""
    if info.speculates:
        return "unknown", "stated"
    label = Path(name).stem if SEPARATOR not in info.path else name
    if named(label).state == ON:  # its heading says that it speculates, though no line of it does
        return "speculative", "assumed"
    if stated or info.speculates is False:
        return "target_only", "stated"
    role, basis = decided(Sign(label, speculation=True))
    if role == "target_only":
        return role, basis
    spoken = any(word in f"{info.engine} {info.format}" for word in _OUTSPOKEN)
    return ("target_only", "inferred") if spoken else ("unknown", "stated")
