"""Outputs compared between arms: what numerics may do, and what only a fault does."""

import math

import numpy as np
import pytest
from block_rows import Kind, rows
from evaluate.reasons import codes, numbers

from specscope.evaluate.outputs.copies import (
    Copies,
    check_outputs,
    excess_p,
    newcombe,
    wilson,
    worst,
)
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.fleet import fleet_verdict

WIN = Kind(tokens={0: 1.0, 2: 2.2, 4: 3.6}, cost_ms={0: 1.0, 2: 1.3, 4: 1.6})
LOSE = Kind(tokens={0: 1.0, 4: 1.2}, cost_ms={0: 1.0, 4: 1.6})


def checked(differing, of, twins_differing, twins, arm="k4", class_="sql"):
    copies = [Copies("e1", class_, arm, of, differing)]
    if twins:
        copies.append(Copies("e1", class_, "k0", twins, twins_differing))
    return check_outputs(copies)


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ((0, 7000, 0, 0), "equal"),
        ((0, 7000, 3, 100), "equal"),
        ((30, 100, 0, 100), "differs"),
        ((600, 2000, 590, 2000), "as_twins"),
        ((3, 100, 0, 0), "undecided"),
        ((100, 100, 0, 0), "undecided"),
        ((3, 10, 0, 5), "undecided"),
    ],
)
def test_a_difference_counts_only_beyond_that_of_twins(counts, state):
    (found,) = checked(*counts)

    assert found.state == state
    assert (found.excess is None) == (counts[3] == 0)
    if found.excess is not None:
        assert found.low <= found.excess <= found.high


def test_published_intervals():
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=6e-5)
    assert newcombe(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=6e-5)
    assert newcombe(9, 10, 3, 10) == pytest.approx((0.1705, 0.8090), abs=6e-5)
    with pytest.raises(ValueError, match="no share"):
        wilson(1, 0)


def test_numerics_alone_are_called_a_fault_in_one_experiment_of_a_hundred_at_most():
    random = np.random.default_rng(0)
    faults, missed, covered = 0, 0, 0
    for _ in range(2000):
        twins, same, worse = (int(random.binomial(150, p)) for p in (0.08, 0.08, 0.30))
        (plain,) = checked(same, 150, twins, 150)
        (broken,) = checked(worse, 150, twins, 150)
        faults += plain.state == "differs"
        missed += broken.state != "differs"
        covered += broken.low <= 0.22 <= broken.high

    assert faults / 2000 <= 0.01
    assert missed / 2000 <= 0.05
    assert 0.92 <= covered / 2000 <= 0.97


def test_many_arms_share_one_error_rate():
    many = check_outputs(
        [Copies("e", f"c{n}", arm, 100, 9 if arm == "k4" else 1) for n in range(50)
         for arm in ("k0", "k4")]
    )  # fmt: skip
    (one,) = checked(9, 100, 0, 100)

    assert one.state == "differs"
    assert {check.state for check in many} == {"undecided"}
    assert worst(many) == "undecided"
    assert worst([]) is None


def test_an_arm_that_changes_outputs_is_not_switched_on_whatever_it_gains():
    times, parts = rows({"sql": WIN, "prose": WIN})
    fault = checked(40, 100, 0, 100)

    verdicts = {v.segment.class_: v for v in decide(times, parts, outputs=fault)}

    assert (verdicts["sql"].action, verdicts["sql"].k) == ("engine_fault", None)
    assert verdicts["sql"].grade == "none"
    assert not verdicts["sql"].applicable
    assert numbers(verdicts["sql"], "outputs", "k4")["differing"] == 40
    assert (verdicts["prose"].action, verdicts["prose"].k) == ("set_k", 4)
    fleet = fleet_verdict(list(verdicts.values()))
    assert fleet.action == "route_selectively"
    (change,) = fleet.would_change
    assert (change.code, change["flag"]) == ("remedy", "OUTPUTS_DIFFER")


def test_speculation_that_changes_every_output_is_removed_everywhere():
    times, parts = rows({"sql": WIN})

    verdicts = decide(times, parts, Rules(current=4), outputs=checked(100, 100, 2, 100))

    assert verdicts[0].action == "engine_fault"
    assert fleet_verdict(verdicts).action == "remove_everywhere"


def test_a_loss_needs_no_second_reason_and_other_arms_are_not_blamed():
    times, parts = rows({"sql": LOSE})
    (lost,) = decide(times, parts, outputs=checked(40, 100, 0, 100))
    times, parts = rows({"sql": WIN})
    (kept,) = decide(times, parts, outputs=checked(40, 100, 0, 100, arm="k2"))

    assert (lost.action, lost.grade) == ("disable", "measured")
    assert (kept.action, kept.k, kept.grade) == ("set_k", 4, "measured")
    assert numbers(kept, "outputs", "k2")["compared"] == 100


def test_outputs_that_are_not_judged_yet_keep_a_gate_from_changing():
    times, parts = rows({"sql": WIN})

    (verdict,) = decide(times, parts, outputs=checked(3, 100, 0, 0))

    assert (verdict.action, verdict.confidence, verdict.applicable) == ("set_k", "low", False)
    assert "thin_outputs" in codes(verdict)


def test_equal_outputs_change_nothing():
    times, parts = rows({"sql": WIN})

    plain = decide(times, parts)

    assert decide(times, parts, outputs=checked(0, 7000, 0, 0)) == plain
    assert decide(times, parts, outputs=checked(600, 2000, 590, 2000)) == plain


def test_fisher_by_hand():
    # 3 of 4 against 0 of 4: the only tables as far out are this one and 3 of 3 more extreme.
    assert excess_p(3, 4, 0, 4) == pytest.approx(math.comb(4, 3) / math.comb(8, 3))
