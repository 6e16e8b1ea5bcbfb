"""A load is one continuous number; a speedup that turns along it is two verdicts."""

from dataclasses import replace

import numpy as np
import pytest
from block_records import rows
from planted import LATENCY, Cost, steady

from specscope.evaluate.experiment.loads import Trend
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide

# Verifying is free up to a few sequences and costs its arithmetic beyond: k = 4 wins, then loses.
BUSY = replace(LATENCY, cost=Cost(weights=4.0, per_query=0.3, draft=0.4), slots=60, pairs=24)


def turned(rate, seed, pairs=24):
    scenario = replace(BUSY, rate=steady(rate), pairs=pairs)
    return rows(scenario.experiment(1, seed), 0, scenario.kinds)


def joined(*experiments):
    """Rows of experiments on one replica, one after the other."""
    blocks, parts, first = [], [], 0
    for some, of_them in experiments:
        blocks += [replace(b, pair=b.pair + first) for b in some]
        parts += [replace(p, pair=p.pair + first) for p in of_them]
        first = max(b.pair for b in blocks)
    return blocks, parts


def test_a_win_at_a_light_load_and_a_loss_at_a_heavy_one_are_not_one_verdict():
    rows_ = joined(turned(5.0, 1), turned(24.0, 2))

    verdicts = decide(*rows_, Rules(looked_at_often=True), design="switchback")

    actions = {verdict.segment.load: verdict.action for verdict in verdicts}
    assert sorted(actions.values()) == ["disable", "set_k"], actions
    (crossing,) = {
        reason["load"] for v in verdicts for reason in v.reasons if reason.code == "crossing"
    }
    pairs = pairs_of(*rows_, "switchback")
    loads = np.array([pair.offered for pair in pairs])
    assert loads[:24].max() < crossing < loads[24:].min()


def test_a_load_is_the_same_number_however_long_blocks_are_and_whatever_ran_in_them():
    blocks, parts = turned(8.0, 3)
    pairs = pairs_of(blocks, parts, "switchback")
    faster = [replace(b, wall_us=b.wall_us / 2) if b.arm == "k4" else b for b in blocks]
    half = [
        replace(
            b,
            last_at=b.first_at + (b.last_at - b.first_at) // 2,
            requests=b.requests // 2,
            admitted_counts=tuple(n // 2 for n in b.admitted_counts),
            wall_us=b.wall_us / 2,
            emitted=b.emitted // 2,
        )
        for b in blocks
    ]

    loads = np.array([pair.offered for pair in pairs])
    assert np.array([p.offered for p in pairs_of(faster, parts, "switchback")]) == pytest.approx(
        loads
    )
    shorter = np.array([p.offered for p in pairs_of(half, parts, "switchback")])
    assert shorter == pytest.approx(loads, rel=0.05)
    # What runs at once at k = 0.
    base = [b for b in blocks if b.arm == "k0"]
    batch = sum(b.request_rounds for b in base) / sum(b.rounds for b in base)
    assert loads.mean() == pytest.approx(batch, rel=0.1)


def test_a_crossing_has_an_interval_and_a_line_that_may_be_flat_has_none():
    errors = np.diag([1e-4, 4e-4])
    line = Trend("k4", 0.1, -0.5, errors, middle=16.0, least=4.0, most=64.0, pairs=40)
    flat = Trend("k4", 0.1, -0.02, errors, middle=16.0, least=4.0, most=64.0, pairs=40)

    low, high = line.crossing_interval()

    assert line.crossing == pytest.approx(16 * np.exp(0.2))
    assert low < line.crossing < high
    assert high / low == pytest.approx(np.exp(2 * 2.02 * 0.0108 / 0.5), rel=0.02)
    assert line.at(line.crossing)[0] == pytest.approx(0.0, abs=1e-12)
    assert (line.turns, flat.turns) == (True, False)
    assert flat.crossing_interval() == (None, None)
