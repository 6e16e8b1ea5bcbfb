"""Check the latency limit (allowance) of each class in a shared batch, under the arm in force.

A class that does not speculate still waits for the drafts of others. So it may get slower under a
gate that pays overall. Its own draft length cannot change that; it belongs in another pool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.blocks import IN_FORCE, BlockClass
from specscope.evaluate.statistics import quantiles
from specscope.evaluate.statistics.multiplicity import bonferroni
from specscope.evaluate.statistics.quantiles import QuantileEstimate
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.verdict import Action


@dataclass(frozen=True, slots=True)
class ClassDelay:
    """One class of a shared batch under the arm in force.

    action: route if its 95th percentile of time per output token exceeds the limit with confidence;
    keep if it lies within the limit with confidence; otherwise inconclusive. tpot_p95_ms: the
    percentile under every arm that ran in such blocks, for comparison. [ms]
    """

    epoch: str
    class_: str
    action: Action
    allowance_ms: float
    requests: int
    tpot_p95_ms: Mapping[str, QuantileEstimate]

    @property
    def reason(self) -> str:
        """A sentence with the numbers."""
        in_force = self.tpot_p95_ms[IN_FORCE]
        span = "" if in_force.low is None else f" ({in_force.low:.3g} to {in_force.high:.3g})"
        others = ", ".join(
            f"{p95.value:.3g} under {arm}"
            for arm, p95 in sorted(self.tpot_p95_ms.items())
            if arm != IN_FORCE
        )
        return (
            f"{self.class_} takes {in_force.value:.3g}{span} ms a token (95th percentile) in the "
            f"shared batch, {self.allowance_ms:.3g} are allowed" + (f"; {others}" if others else "")
        )


@dataclass(frozen=True, slots=True)
class ClassTimes:
    """Times of one class in a shared batch, by arm, without a judgement.

    tpot_p95_ms: 95th percentile of time per output token. [ms]
    """

    epoch: str
    class_: str
    tpot_p95_ms: Mapping[str, QuantileEstimate]


def class_times(rows: Iterable[BlockClass], rules: Rules) -> list[ClassTimes]:
    """Times of each class that shared its batch with another, under every arm that ran.

    All intervals hold jointly at the level of `rules` (Bonferroni), and at any time if the evidence
    is looked at often. Classes without a finished request are left out.
    """
    by_class = _in_shared_batches(rows)
    level = bonferroni(rules.level, max(1, sum(map(len, by_class.values()))))
    found = []
    for (epoch, class_), arms in by_class.items():
        p95 = {arm: _p95(arms[arm], level, rules.looked_at_often) for arm in sorted(arms)}
        known = {arm: one for arm, one in p95.items() if one is not None}
        if known:
            found.append(ClassTimes(epoch, class_, known))
    return found


def judge_delays(rows: Iterable[BlockClass], rules: Rules) -> list[ClassDelay]:
    """A verdict on each class with a limit that shared its batch under `current`.

    Blocks in which a class ran alone are left out. The error rate of `rules` holds jointly over all
    classes and arms (Bonferroni), and at any time if the evidence is looked at often. The order of
    rows does not matter; a repeated row counts once.
    """
    judged = {
        key: arms
        for key, arms in _in_shared_batches(rows).items()
        if rules.allowance(key[1]) is not None and IN_FORCE in arms
    }
    comparisons = sum(len(arms) for arms in judged.values())
    level = bonferroni(rules.level, max(1, comparisons))
    delays = (_judge(*key, arms, rules, level) for key, arms in judged.items())
    return [delay for delay in delays if delay is not None]


def _in_shared_batches(
    rows: Iterable[BlockClass],
) -> dict[tuple[str, str], dict[str, list[BlockClass]]]:
    """Rows of blocks with at least two classes, by (epoch, class) and arm."""
    blocks: dict[tuple[object, ...], dict[str, list[BlockClass]]] = defaultdict(dict)
    for row in dict.fromkeys(rows):
        key = (row.epoch, row.policy, row.replica, row.boot, row.pair, row.arm)
        blocks[key].setdefault(row.class_, []).append(row)
    by_class: dict[tuple[str, str], dict[str, list[BlockClass]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for shared in blocks.values():
        if len(shared) > 1:
            for class_, class_rows in shared.items():
                for row in class_rows:
                    by_class[row.epoch, class_][row.arm].append(row)
    return dict(sorted(by_class.items()))


def _judge(
    epoch: str,
    class_: str,
    arms: Mapping[str, Sequence[BlockClass]],
    rules: Rules,
    level: float,
) -> ClassDelay | None:
    p95 = {
        arm: one for arm, rows in arms.items() if (one := _p95(rows, level, rules.looked_at_often))
    }
    in_force, allowance_ms = p95.get(IN_FORCE), rules.allowance(class_)
    if in_force is None or allowance_ms is None:
        return None
    requests = sum(row.requests for row in arms[IN_FORCE])
    enough = in_force.blocks >= rules.min_pairs and requests >= rules.min_requests
    if not enough:
        action = Action.INCONCLUSIVE
    elif objectives.exceeds(in_force, allowance_ms):
        action = Action.ROUTE
    else:
        action = Action.KEEP if in_force.value <= allowance_ms else Action.INCONCLUSIVE
    return ClassDelay(epoch, class_, action, allowance_ms, requests, p95)


def _p95(
    rows: Sequence[BlockClass], level: float, looked_at_often: bool
) -> QuantileEstimate | None:
    histograms = [dict(zip(row.tpot_bins, row.tpot_counts, strict=True)) for row in rows]
    histograms = [one for one in histograms if sum(one.values())]
    if not histograms:
        return None
    return quantiles.woodruff(histograms, 0.95, level, looked_at_often=looked_at_often)
