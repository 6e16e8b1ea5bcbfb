"""What a change is worth: the new arm over the one in force, and only if the two met in pairs."""

import dataclasses

import pytest
from evaluate.block_rows import Kind, rows
from gate.judged import of_epoch, recommend
from gate.shared_engine import packed
from gate.test_gate_tables_judged import advised

from specscope.evaluate.statistics.quantiles import bin_of
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.fleet import segment_names
from specscope.policy.table import GateTable
from specscope.report.actions import change_rows, tokens_a_week
from specscope.report.phrases.actions import change_said, worth_said

NOW = 1_800_000_000 * 10**9
WIN = Kind({0: 1.0, 2: 2.2, 4: 3.6}, {0: 1.0, 2: 1.3, 4: 1.6})
"""k = 2 runs at 2.2 / 1.3 of target-only, k = 4 at 3.6 / 1.6."""


def changes(found, tokens=None):
    names = segment_names((v.epoch, v.segment) for v in found.assessment.verdicts)
    return change_rows(found, names, tokens or {}, {})


def too_slow(in_force, allowed_ms):
    """Chat runs longest at k = 4, but a token may not take so long."""
    times, parts = rows({"chat": WIN}, noise=0.001)
    slow_ms = {0: 10.0, 2: 20.0, 4: 40.0}
    times = [
        dataclasses.replace(t, tpot_bins=(bin_of(slow_ms[t.k]),), tpot_counts=(t.requests,))
        for t in times
    ]
    rules = Rules(tpot_allowance_ms={"chat": allowed_ms})
    return recommend(of_epoch(times, parts), GateTable((), in_force), now=NOW, decision=rules)


@pytest.mark.parametrize(
    ("in_force", "allowed_ms", "rule", "truth"),
    [
        (4, 25.0, "lower", (2.2 / 1.3) / (3.6 / 1.6)),
        (4, 15.0, "disable", 1.0 / (3.6 / 1.6)),
        (4, 5.0, "route", 1.0 / (3.6 / 1.6)),
        (0, 50.0, "enable", 3.6 / 1.6),
    ],
)
def test_a_change_that_a_delay_forces_may_cost_tokens_and_says_so(
    in_force, allowed_ms, rule, truth
):
    (change,) = changes(too_slow(in_force, allowed_ms))

    assert change.rule == rule
    assert change.worth.speedup.value == pytest.approx(truth, rel=0.01)
    assert worth_said(change)[0][0] == ("+" if truth > 1 else "-")


def test_a_table_that_is_adopted_is_worth_what_it_gains_over_the_one_in_force():
    found = advised(packed)  # target-only is in force

    (change,) = changes(found)

    (verdict,) = found.verdicts
    against_k0 = next(one for one in verdict.speedups if one.arm == "sharp")
    assert (change.rule, change.arm) == ("adopt", "sharp")
    assert change.worth.speedup.value == against_k0.value
    assert change_said(change) == "put another table in force: the table in force to that of sharp"


def test_the_change_with_the_most_traffic_and_gain_comes_first():
    times, parts = rows({"rare": WIN, "often": WIN})
    found = recommend(of_epoch(times, parts), GateTable(), now=NOW)
    tokens = tokens_a_week(
        [
            {"class": name, "context_bucket": "0-1k", "emitted": emitted, "hours": 168}
            for name, emitted in (("rare", 10**6), ("often", 10**9))
        ]
    )

    first, second = changes(found, tokens)

    assert (first.segment.split(",")[0], second.segment.split(",")[0]) == ("often", "rare")
    assert first.worth.replica_hours.value > 100 * second.worth.replica_hours.value
