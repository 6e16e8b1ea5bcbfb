"""Causes of loss, each planted alone in an engine that is healthy otherwise, and ties of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planted_time import Law, Rows, Traffic, scaled, simulate

from specscope.evaluate.costs.machine import machine_of
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.verdict import Verdict

# Weights of 8 billion parameters take 4.8 ms to read on this device, a draft's of 0.75 0.45 ms.
CARD = {
    "parameters": 8_030_000_000, "active_parameters": 8_030_000_000, "bytes_per_weight": 2.0,
    "kv_bytes_per_token": 131072, "experts": 0, "draft_parameters": 750_000_000,
    "draft_bytes_per_weight": 2.0, "gpu_type": "NVIDIA H100 80GB HBM3", "tensor_parallel": 1,
}  # fmt: skip
MOE = CARD | {"experts": 64, "active_parameters": 1_003_750_000}
HEALTHY = Law()
LOW = replace(HEALTHY, hazard=(0.16, 0.15, 0.15, 0.14, 0.14, 0.13, 0.13, 0.12))
EASY, HARD = Traffic("easy", scaled(HEALTHY, 1.3)), Traffic("hard", scaled(HEALTHY, 0.5))
BESIDE = (EASY, HARD)


@dataclass(frozen=True)
class Plant:
    """traffic: whose loss is judged. others: what the store holds beside it, in an engine of the
    same costs. causes: one, or two that tie. card: of the Boot; None for a Boot without one.
    """

    traffic: Traffic
    causes: tuple[str, ...]
    card: Mapping[str, object] | None = field(default_factory=lambda: CARD)
    others: tuple[Traffic, ...] = ()
    design: str = "closed_loop"


def plant(*causes: str, lengths: tuple[int, ...] = (0, 4), **changes: object) -> Plant:
    """One thing wrong in the healthy engine."""
    settings = {k: changes.pop(k) for k in ("card", "others", "design") if k in changes}
    law = replace(HEALTHY, **changes)  # type: ignore[arg-type]
    return Plant(Traffic("x", law, lengths), causes, **settings)  # type: ignore[arg-type]


def beside(one: Plant) -> Plant:
    """The same plant, with easy and hard traffic in the store that runs at the same costs."""
    laws = {
        other.name: replace(one.traffic.law, hazard=other.law.hazard, kinds=HEALTHY.kinds)
        for other in BESIDE
    }
    others = tuple(Traffic(name, law, one.traffic.lengths) for name, law in laws.items())
    return replace(one, others=(*one.others, *others))


_LOW = LOW.hazard
SINGLE = {
    "low acceptance": plant("low_acceptance", hazard=_LOW),
    "low acceptance, no card": plant("low_acceptance", hazard=_LOW, card=None),
    "low acceptance, open traffic": plant(
        "low_acceptance", hazard=_LOW, rate=28.0, output=40.0, design="switchback", prefill=0.3
    ),
    "draft mismatch": plant("draft_mismatch", hazard=(0.03,) * 8),
    "late positions": plant(
        "late_positions", hazard=(0.80, 0.10, *(0.1,) * 6), lengths=(0, 8), per_query=0.06
    ),
    "adapters": plant(
        "adapter_mismatch", kinds=(("", 0.2, 1.1), ("legal", 0.8, 0.06)), per_query=0.1
    ),
    "grammar": plant(
        "grammar_mismatch", kinds=(("", 0.2, 1.1), ("guided", 0.8, 0.06)), per_query=0.1
    ),
    "draft cost": plant(
        "draft_cost", draft=4.5, card=CARD | {"draft_parameters": 6_000_000_000}
    ),
    "draft cost, no card": plant("draft_cost", draft=4.5, card=None),
    "draft cost, open traffic": plant(
        "draft_cost", draft=4.5, rate=28.0, output=40.0, prefill=0.3, design="switchback", card=None
    ),
    "draft placement": plant("draft_placement", draft=4.5),
    "idle": plant("idle", spec_gap=14.0),
    "idle, open traffic": plant(
        "idle", spec_gap=14.0, rate=28.0, output=40.0, prefill=0.3, design="switchback", card=None
    ),
    "host sync": plant(
        "host_sync", spec_gap=14.0,
        others=(Traffic("busy", replace(HEALTHY, spec_gap=14.0, batch=40)),),
    ),
    "sampling": plant("sampling", spec_sample=0.9),
    "short outputs": plant("short_output", output=9.0, catchup=14.0),
    "prefill": plant("prefill_side_effect", output=30.0, spec_prefill=28.0),
    "memory": plant("memory_displacement", displaced=0.30),
    "verify cost, no card": plant("verify_cost", per_query=0.28, card=None, batch=24),
    "compute-bound": plant("verify_compute_bound", per_query=0.02, batch=290, draft_per_sequence=0,
                           sample=0.001),
    "launches": plant("overhead_bound", spec_launch=15.0, model_bytes=17e9),
    "padding": plant("padding", per_query=0.055, spec_tile=512, batch=16),
    "raggedness": plant("raggedness", per_query=0.15, short=0.8, lengths=(0, 8), batch=24,
                        hazard=(0.85,) * 8, card=None),
    "context": plant(
        "context_cost", per_context=1.6e-4, reread=0.9, context=6000.0, bucket="4-16k",
        others=(Traffic("short", replace(HEALTHY, per_context=1.6e-4, reread=0.9)),),
    ),
    "staircase": plant("staircase", jump_at=30.0, jump=16.0, lengths=(0, 3, 4, 5)),
    "experts": plant("expert_union", card=MOE, batch=3, experts=64, active=8, expert_ms=0.35,
                     weights=1.0, fixed=1.0, hazard=(0.4,) * 8, draft=0.4),
}  # fmt: skip
TIES = {
    "verify and idle": plant(
        "verify_cost", "idle", per_query=0.11, batch=24, spec_gap=8.2, card=None
    ),
    "verify and acceptance": plant(
        "verify_cost", "low_acceptance", hazard=(0.28, 0.265, 0.25, 0.25), per_query=0.09, batch=24,
        card=None,
    ),
    "draft and idle": plant("draft_cost", "idle", draft=2.9, spec_gap=8.0, card=None),
    "sampling and idle": plant("sampling", "idle", spec_sample=0.5, spec_gap=8.0),
}  # fmt: skip


def verdicts_of(
    one: Plant,
    worlds: int,
    pairs: int,
    seed: int,
    without: Sequence[str] = (),
    without_in: Sequence[str] = ("k0", "k4"),
    past: Traffic | None = None,
) -> Sequence[Verdict]:
    """The verdict on the planted traffic in each world.

    without: columns that the engine does not record in the arms of without_in. past: traffic of an
    earlier epoch.
    """
    machines = {"e": machine_of(one.card)} if one.card else None
    found = []
    rows: list[list[Rows]] = []
    for place, traffic in enumerate((one.traffic, *one.others)):
        rows.append(simulate(traffic, worlds, pairs, seed + 7919 * place, first=1 + place * pairs))
    if past is not None:
        rows.append(simulate(past, worlds, pairs, seed + 1, first=-pairs, epoch="before"))
    for world in range(worlds):
        blocks = [block for part in rows for block in part[world][0]]
        parts = [part for some in rows for part in some[world][1]]
        gone: dict[str, Any] = dict.fromkeys(without)
        blocks = [replace(b, **gone) if b.arm in without_in else b for b in blocks]
        verdicts = decide(blocks, parts, Rules(), one.design, machines)  # type: ignore[arg-type]
        own = [v for v in verdicts if (v.epoch, v.segment.class_) == ("e", one.traffic.name)]
        found.append(max(own, key=lambda v: v.pairs))
    return found


def outcome(one: Plant, verdict: Verdict) -> str:
    """right, wrong (another cause stands alone), tie (more causes than were planted, with them),
    or none (the loss is not decided, or nothing is said)."""
    if not verdict.cause_odds:
        return "none"
    if len(one.causes) == 1:
        if verdict.primary == one.causes[0]:
            return "right"
        names = {rival.cause for rival in verdict.cause_odds}
        return "tie" if verdict.primary is None and one.causes[0] in names else "wrong"
    likely = {rival.cause for rival in verdict.cause_odds if rival.odds is not None}
    if verdict.primary is not None:
        return "wrong"
    return "right" if likely == set(one.causes) else "tie"
