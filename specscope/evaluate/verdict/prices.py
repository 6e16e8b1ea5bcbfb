"""What output tokens cost: the price of the time in which an engine is busy with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specscope.evaluate.costs.closed_forms import cost_per_million_tokens
from specscope.evaluate.experiment.blocks import BASELINE
from specscope.evaluate.experiment.crossover import CLEAN
from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.verdict.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one arm. per_million: of a million output tokens, in the currency of the Boot's price.
    difference: that less target-only's; None for target-only, and where that has none."""

    per_million: float
    difference: float | None


def prices(boots: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What an hour of a replica costs, by epoch; epochs whose boots say two prices are left out.

    boots: rows of `boot`. One that says no price is of the same configuration as those that do.
    """
    by_epoch: dict[str, set[float]] = {}
    for boot in boots:
        price = boot["price_per_hour"]
        if price is not None and math.isfinite(price) and price > 0:
            by_epoch.setdefault(boot["epoch"], set()).add(float(price))
    return {epoch: min(amounts) for epoch, amounts in by_epoch.items() if len(amounts) == 1}


def costs(verdict: Verdict, of_hour: Mapping[str, float]) -> dict[str, Cost]:
    """Of each arm of a verdict. of_hour: see `prices`.

    Empty without a price, where the epochs of a crossover differ in it, and where the metric is
    latency: the engine idles then, and what it idles is nobody's token.
    """
    price = _price(verdict.epoch, of_hour)
    if price is None or verdict.metric != METRICS["throughput"]:
        return {}
    per_million = {
        arm.arm: cost
        for arm in verdict.arms
        if arm.tokens_per_s
        and math.isfinite(cost := cost_per_million_tokens(price, arm.tokens_per_s))
    }
    baseline = CLEAN if CLEAN in per_million else BASELINE
    base = per_million.get(baseline)
    return {
        arm: Cost(cost, None if base is None or arm == baseline else cost - base)
        for arm, cost in per_million.items()
    }


def _price(epoch: str, of_hour: Mapping[str, float]) -> float | None:
    """A crossover's sides are epochs of their own, joined by a plus."""
    hourly = {of_hour.get(name) for name in epoch.split("+")}
    return hourly.pop() if len(hourly) == 1 else None
