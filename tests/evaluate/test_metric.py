"""The metric that decides moves with the queue and never jumps."""

import itertools
import math
from dataclasses import replace

import pytest
from block_rows import Kind, rows

from specscope.evaluate.experiment import objectives
from specscope.evaluate.experiment.objectives import metric_of, objective_for, weight_of
from specscope.evaluate.statistics.quantiles import value_of
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.fleet import fleet_verdict
from specscope.evaluate.verdict.verdict import Metric
from specscope.report.views import headline

SHARES = [step / 100 for step in range(31)]


def blocks(throughput, latency):
    """Twenty pairs in which k4 gains so much in either metric."""
    times, parts = rows({"chat": Kind({0: 1.0, 4: 2.5}, {0: 1.0, 4: 2.5 / throughput})})
    base = 400
    own = base - round(math.log(latency) / math.log(value_of(2) / value_of(1)))
    timed = [
        replace(b, tpot_bins=(base if b.k == 0 else own,), tpot_counts=(b.requests,)) for b in times
    ]
    return timed, parts


def at(share, evidence):
    """The verdict on the same blocks with so many requests waiting for each that runs."""
    times, parts = evidence
    queued = [replace(b, waiting=share * b.request_rounds) for b in times]
    (verdict,) = decide(queued, parts, None, "switchback")
    return verdict


def speedup(verdict):
    return math.log(verdict.speedups[0].value)


@pytest.mark.parametrize(
    ("throughput", "latency"), [(1.3, 1.5), (0.8, 0.7), (1.25, 1.05), (1.01, 1.3), (0.8, 1.3)]
)
def test_a_queue_that_grows_moves_the_speedup_without_a_jump(throughput, latency):
    evidence = blocks(throughput, latency)
    found = [at(share, evidence) for share in SHARES]
    values = [speedup(verdict) for verdict in found]

    whole = values[-1] - values[0]
    assert values[0] == pytest.approx(math.log(latency), abs=0.015)
    assert values[-1] == pytest.approx(math.log(throughput), abs=0.015)
    steps = [after - before for before, after in itertools.pairwise(values)]
    assert all(abs(step) <= 0.01 / 0.15 * abs(whole) + 1e-9 for step in steps)
    actions = [verdict.action for verdict in found]
    assert sum(a != b for a, b in itertools.pairwise(actions)) <= (
        0 if (throughput - 1.02) * (latency - 1.02) > 0 else 2
    )


@pytest.mark.parametrize(("throughput", "latency"), [(1.3, 1.5), (0.8, 0.7), (0.8, 1.3)])
def test_a_share_of_0_099_and_one_of_0_101_say_the_same(throughput, latency):
    evidence = blocks(throughput, latency)
    below, above = at(0.099, evidence), at(0.101, evidence)

    assert (below.action, below.k, below.confidence) == (above.action, above.k, above.confidence)
    assert speedup(below) == pytest.approx(speedup(above), abs=0.01)
    told = [headline([one], fleet_verdict([one])) for one in (below, above)]
    assert told[0] == told[1]


def test_between_the_metrics_both_are_told_with_their_intervals():
    one = at(0.1, blocks(0.8, 1.3))

    both = {t.metric: t for t in one.tradeoffs}
    assert both[Metric.WALL_TIME].ratio == pytest.approx(1 / 0.8, rel=0.02)
    assert both[Metric.TOKEN_TIME_MEAN].ratio == pytest.approx(1 / 1.3, rel=0.02)
    assert both[Metric.WALL_TIME].worsens
    assert not both[Metric.TOKEN_TIME_MEAN].worsens
    assert not {Metric.WALL_TIME, Metric.TOKEN_TIME_MEAN} & {
        t.metric for t in at(0.0, blocks(0.8, 1.3)).tradeoffs
    }


def test_weights_follow_the_queue_and_the_busy_time_of_engines_whose_queue_is_not_known():
    times, _ = blocks(1.3, 1.5)

    def weight(share):
        queued = [replace(b, waiting=share * b.request_rounds) for b in times]
        return weight_of(objective_for("switchback", queued))

    assert [weight(share) for share in (0.0, 0.05, 0.125, 0.2, 0.3)] == pytest.approx(
        [0.0, 0.0, 0.5, 1.0, 1.0], abs=1e-9
    )
    assert weight_of(objective_for("closed_loop", times)) == 1.0
    busy = [replace(b, last_at=b.first_at + int(1e3 * b.wall_us / 0.8)) for b in times]
    assert weight_of(objective_for("switchback", busy)) == pytest.approx(0.5, abs=0.01)
    assert metric_of("latency") != metric_of("throughput") != metric_of(0.4)
    assert objectives.saturation(busy) == pytest.approx(0.5, abs=0.01)
