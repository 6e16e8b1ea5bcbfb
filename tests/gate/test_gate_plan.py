"""How long verdicts take, from what has run so far."""

import dataclasses

import pytest
from evaluate.block_rows import Kind, rows

from specscope.evaluate.verdict.decide import decide
from specscope.gate.plan import block_seconds, plan, plan_lines, replica_count

COST = {0: 1.0, 4: 1.6}
WIN = Kind({0: 1.0, 4: 3.2}, COST)
LOSE = Kind({0: 1.0, 4: 1.2}, COST)


def test_missing_pairs_become_hours():
    verdicts = decide(*rows({"sql": LOSE}, pairs=5))

    (step,) = plan(verdicts, replicas=8, block_s=120, share=0.05)

    assert (step.pairs, step.needed) == (5, 15)
    # 8 replicas, 5 % of pairs of two 2-minute blocks: 6 pairs an hour.
    assert step.hours == pytest.approx(15 / 6)
    assert "15 more: about 2.5 hours at 5.0% of the pairs" in plan_lines([step])[0]


def test_target_only_blocks_are_rationed_where_speculation_wins():
    winning = decide(*rows({"sql": WIN}, pairs=5))
    losing = decide(*rows({"sql": LOSE}, pairs=5))

    (rich,) = plan(winning, replicas=1, block_s=120)
    (poor,) = plan(losing, replicas=1, block_s=120)

    assert rich.share == pytest.approx(0.01 / (1 - 1 / winning[0].speedups[0].high))
    assert poor.share == 1.0


def test_enough_is_enough():
    (step,) = plan(decide(*rows({"sql": WIN}, pairs=25)), replicas=1, block_s=120)

    assert step.hours is None
    assert plan_lines([step]) == [f"{step.segment}: set_k, 25 pairs: enough"]


def test_blocks_and_replicas_are_read_from_what_ran():
    times, _ = rows({"sql": WIN}, pairs=3)
    other = [dataclasses.replace(t, replica="r1", last_at=t.first_at + 3 * 10**9) for t in times]

    assert block_seconds(times) == 1.0
    assert block_seconds([*times, *other]) == 2.0
    assert block_seconds([]) == 120.0
    assert replica_count([*times, *other]) == 2
    assert replica_count([]) == 1
