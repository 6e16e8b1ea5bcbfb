"""Measure a contrast again, over the pairs of a later period."""

from __future__ import annotations

from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.measures import Measure
from specscope.evaluate.experiment.objectives import METRICS, Objective, objective_for
from specscope.evaluate.experiment.offered import offered_to
from specscope.evaluate.experiment.paired import Paired
from specscope.evaluate.experiment.segments import Segment

LEVEL = 0.95


def measured_again(
    experiment: Paired,
    key: tuple[str, Segment],
    arms: tuple[str, str],
    stretch: tuple[int, int],
    metric: str | None = None,
    *,
    is_over: bool = True,
) -> Estimate | None:
    """An arm over a baseline, over pairs of an epoch's segment that began in a period.

    stretch: from and until, ns since 1970. metric: metric of the first measurement, in words; None
    for the metric of this traffic. is_over: the period has ended, so its evidence is looked at
    once; otherwise the interval holds at any time. None if no pair of the period ran both arms, or
    if this segment no longer exists.
    """
    usable = experiment.usable.get(key)
    if usable is None:
        return None
    since, until = stretch
    chosen = [
        pair
        for pair in usable.pairs
        if since <= min(block.first_at for block in pair.blocks.values()) < until
    ]
    if not chosen:
        return None
    open_traffic = experiment.design == "switchback"
    blocks = [block for pair in usable.pairs for block in pair.blocks.values()]
    objective: Objective = objective_for(experiment.design, blocks)
    if metric == METRICS["throughput"]:
        objective = "throughput"
    elif metric == METRICS["latency"]:
        objective = "latency"
    measure = Measure(
        objective,
        offered_to(experiment.pairs) if open_traffic else None,
        experiment.design != "cohort",
    )
    often = open_traffic and not is_over
    return measure.estimate(chosen, *arms, LEVEL, looked_at_often=often)
