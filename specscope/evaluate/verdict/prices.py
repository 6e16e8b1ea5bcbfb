"""The cost of output tokens: the price of the busy time of the engine."""

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
    """The cost of one arm's tokens.

    per_million: cost of a million output tokens, in the currency of the boot's price. difference:
    per_million minus target-only's; None for target-only, or if target-only has no cost."""

    per_million: float
    difference: float | None


def prices(boots: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Price of a replica hour, by epoch; epochs with two prices are left out.

    boots: rows of `boot`. A boot without a price has the price of its epoch's other boots.
    """
    by_epoch: dict[str, set[float]] = {}
    for boot in boots:
        price = boot["price_per_hour"]
        if price is not None and math.isfinite(price) and price > 0:
            by_epoch.setdefault(boot["epoch"], set()).add(float(price))
    return {epoch: min(amounts) for epoch, amounts in by_epoch.items() if len(amounts) == 1}


def costs(verdict: Verdict, of_hour: Mapping[str, float]) -> dict[str, Cost]:
    """The cost of each arm of a verdict. of_hour: see `prices`.

    Empty without a price, if the epochs of a crossover differ in price, or if the metric is
    latency, because idle time has no tokens.
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
    """Price of an epoch. A crossover's epoch joins those of its sides by a plus sign."""
    hourly = {of_hour.get(name) for name in epoch.split("+")}
    return hourly.pop() if len(hourly) == 1 else None
