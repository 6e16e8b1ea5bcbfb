"""The table of causes, and the diagnosis of every arm of a segment.

Order matters within a part: the first cause that explains half of the part is named.
"""

from __future__ import annotations

from collections.abc import Sequence

from specscope.evaluate.causes import acceptance, draft, serving, verify
from specscope.evaluate.causes.cause import Cause
from specscope.evaluate.causes.diagnosis import Diagnosis, diagnose
from specscope.evaluate.causes.epoch_traffic import EpochTraffic
from specscope.evaluate.causes.facts import gather
from specscope.evaluate.costs.machine import UNKNOWN, Machine
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.objectives import Objective
from specscope.evaluate.experiment.pairs import Pair
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.experiment.summary import ArmSummary

CAUSES = (
    Cause("bad_baseline", None, serving.bad_baseline),
    Cause("engine_fault", None, serving.engine_fault),
    Cause("low_acceptance", "low_acceptance", acceptance.low_acceptance),
    Cause("adapter_mismatch", "low_acceptance", acceptance.adapter_mismatch),
    Cause("grammar_mismatch", "low_acceptance", acceptance.grammar_mismatch),
    Cause("drafter_window", "low_acceptance", acceptance.drafter_window),
    Cause("draft_mismatch", "low_acceptance", acceptance.draft_mismatch),
    Cause("late_positions", "late_positions", acceptance.late_positions),
    Cause("draft_cost", "draft_cost", draft.draft_cost),
    Cause("draft_placement", "draft_cost", draft.draft_placement),
    Cause("short_output", "short_output", draft.short_output),
    Cause("idle", "idle", serving.idle),
    Cause("host_sync", "idle", serving.host_sync),
    Cause("sampling", "sampling", serving.sampling),
    Cause("prefill_side_effect", "prefill_side_effect", serving.prefill_side_effect),
    Cause("memory_displacement", "memory_displacement", serving.memory_displacement),
    Cause("verify_cost", "verify_cost", verify.verify_cost),
    Cause("padding", "verify_cost", verify.padding),
    Cause("raggedness", "verify_cost", verify.raggedness),
    Cause("staircase", "verify_cost", verify.staircase),
    Cause("context_cost", "verify_cost", verify.context_cost),
    Cause("expert_union", "verify_cost", verify.expert_union),
    Cause("verify_compute_bound", "verify_cost", verify.verify_compute_bound),
    Cause("overhead_bound", "verify_cost", verify.overhead_bound),
)


def find_causes(
    segment: Segment,
    pairs: Sequence[Pair],
    arms: Sequence[ArmSummary],
    flags: Sequence[str],
    epoch_traffic: EpochTraffic,
    machine: Machine | None = None,
    *,
    objective: Objective = "throughput",
    earlier: EpochTraffic | None = None,
) -> tuple[Diagnosis, ...]:
    """A diagnosis of every arm of a segment against its k0; empty without k0.

    epoch_traffic: all traffic of the epoch. earlier: all traffic of the epoch before. objective:
    the metric of the speedups.
    """
    base = next((arm for arm in arms if arm.arm == BASELINE), None)
    if base is None:
        return ()
    facts = (
        gather(
            segment,
            pairs,
            arm,
            arms,
            base,
            objective=objective,
            flags=flags,
            epoch_traffic=epoch_traffic,
            past=None if earlier is None else earlier.past(segment, arm.arm),
            machine=machine or UNKNOWN,
        )
        for arm in arms
        if arm.k
    )
    return tuple(diagnose(one, CAUSES) for one in facts if one is not None)
