"""Export a table as an engine's settings, with the loss against the full table.

The tables of vLLM, SGLang and TensorRT-LLM depend on the batch alone, not on class or context.
`specscope` is the policy format, which the hook follows in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specscope.gate.rules import Move
from specscope.gate.schedule import Schedule, best_schedule, pool_split
from specscope.policy.table import GateTable

LARGEST_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Exported:
    """Settings for one engine.

    regret: lost share of the full table's throughput; None if unknown, with the reasons in
    `unknown`. routed_regret: the regret with a router that follows `router`."""

    engine: str
    settings: Mapping[str, Any]
    regret: float | None
    routed_regret: float | None
    router: tuple[Mapping[str, str], ...]
    limits: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def export(
    engine: str,
    table: GateTable,
    moves: Sequence[Move],
    largest_batch: int = LARGEST_BATCH,
    routed: Sequence[str] = (),
) -> Exported:
    """The best settings that an engine can express. KeyError for an engine not in NAMES.

    routed: classes that a shared batch cannot serve well, whatever their own moves are.
    """
    if engine == OWN:
        return Exported(engine, table.as_json(), 0.0, 0.0, _routes(moves, table, routed), ())
    runs_now = [table.default_k, *(cell.k for cell in table.cells)]
    schedule = best_schedule(moves, largest_batch=largest_batch, in_force=runs_now)
    speculating, _ = pool_split(moves, table)
    apart = any(move.place.verdict.segment.class_ in speculating for move in moves)
    behind = best_schedule(moves, speculating, largest_batch) if apart else schedule
    return Exported(
        engine=engine,
        settings=ENGINES[engine](schedule, largest_batch),
        regret=schedule.regret,
        routed_regret=behind.regret,
        router=_routes(moves, table, routed),
        limits=LIMITS[engine],
        unknown=schedule.unknown,
    )


def vllm(schedule: Schedule, largest_batch: int) -> Mapping[str, Any]:
    """Keys of `--speculative-config`: inclusive ranges of the batch from 1, K may be 0."""
    if schedule.k_max == 0:
        return {}
    return {
        "num_speculative_tokens": schedule.k_max,
        "num_speculative_tokens_per_batch_size": [
            [step.low, largest_batch if step.high is None else step.high, step.k]
            for step in schedule.steps
            if step.low <= largest_batch
        ],
    }


def sglang(schedule: Schedule, largest_batch: int) -> Mapping[str, Any]:
    """The file of `--speculative-adaptive-config`, with one candidate per batch range. So SGLang's
    controller, which uses acceptance and no time, has no choice."""
    return {
        str(step.low): {"candidate_steps": [step.k]}
        for step in schedule.steps
        if step.low <= largest_batch
    }


def tensorrt_llm(schedule: Schedule, largest_batch: int) -> Mapping[str, Any]:
    """Keys of `speculative_config`: draft length up to each batch; above the last it is 0.

    A single range from batch 1 becomes `max_concurrency`, which has the same meaning in all
    versions. The schedule's meaning differs between versions (older ones: from each batch on).
    """
    if schedule.k_max == 0:
        return {}
    on = [step for step in schedule.steps if step.k > 0]
    if len(on) == 1 and on[0].low == 1:
        settings: dict[str, Any] = {"max_draft_len": on[0].k}
        if on[0].high is not None:
            settings["max_concurrency"] = on[0].high
        return settings
    last = max(index for index, step in enumerate(schedule.steps) if step.k > 0)
    return {
        "max_draft_len": schedule.k_max,
        "draft_len_schedule": {
            (largest_batch if step.high is None else step.high): step.k
            for step in schedule.steps[: last + 1]
            if step.low <= largest_batch
        },
    }


ENGINES: dict[str, Callable[[Schedule, int], Mapping[str, Any]]] = {
    "vllm": vllm,
    "sglang": sglang,
    "tensorrt-llm": tensorrt_llm,
}

OWN = "specscope"
NAMES = (*ENGINES, OWN)

LIMITS = {
    "vllm": (
        "merge these keys into the --speculative-config that the server starts with, beside its "
        "method and model: vLLM refuses them alone",
        "read at start-up; the batch decides for all its requests",
        "refused with data parallelism; the V1 runner falls back to piecewise graphs",
        "leave the speculative config out where it is empty",
    ),
    "sglang": (
        "EAGLE and EAGLE3 with top-k 1, without data-parallel attention",
        "--speculative-num-steps must be one of the candidates, beside the draft model's options",
    ),
    "tensorrt-llm": (
        "merge these keys into the speculative_config that the server starts with",
        "draft_len_schedule as in versions that read it as `up to this batch`; older ones read "
        "it as `from this batch on`",
        "leave the speculative config out where it is empty",
    ),
}


def _routes(
    moves: Sequence[Move], table: GateTable, routed: Sequence[str]
) -> tuple[Mapping[str, str], ...]:
    """The pool of each class for a router; empty if all classes need the same pool."""
    alone = {move.place.verdict.segment.class_ for move in moves if move.rule == "route"}
    alone |= set(routed)
    speculating, plain = pool_split(moves, table)
    rules: list[Mapping[str, str]] = []
    for name in sorted({*speculating, *plain, *routed}):
        if name in alone:
            rules.append({"class": name, "pool": "own"})
        elif speculating and plain:
            pool = "speculative" if name in speculating else "target_only"
            rules.append({"class": name, "pool": pool})
    return tuple(rules)
