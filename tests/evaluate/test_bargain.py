"""What an arm really drafted, what it costs elsewhere, and which traffic is a segment."""

import dataclasses

import numpy as np
import pytest
from evaluate.block_rows import Kind, rows
from evaluate.reasons import codes, numbers

from specscope.evaluate.experiment.compliance import drafted_per_round
from specscope.evaluate.experiment.paired import paired
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.statistics.quantiles import bin_of
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.untried import untried, worth_trying
from specscope.evaluate.verdict.verdict import Action, Confidence, Flag, Grade, Metric

COST = {0: 1.0, 2: 1.3, 4: 1.6}
WIN = Kind({0: 1.0, 2: 2.2, 4: 3.6}, COST)
TIE = Kind({0: 1.0, 4: 1.0}, {0: 1.0, 4: 1.0})


def drafting(times, parts, arm, share):
    """The rows as if an arm proposed a share of its length in every round that drafted."""
    changed = [
        dataclasses.replace(t, proposed=round(share * t.k * t.request_rounds))
        if t.arm == arm
        else t
        for t in times
    ]
    return changed, parts


# --- what ran ------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "share"), [(TIE, 0.0), (WIN, 0.325), (WIN, 0.5)])
def test_an_arm_that_did_not_draft_its_length_gets_no_verdict(kind, share):
    times, parts = drafting(*rows({"sql": kind}, pairs=60), "k4", share)
    alone = [t for t in times if t.arm in ("k0", "k4")]

    (verdict,) = decide(alone, parts)

    assert (verdict.action, verdict.k) == (Action.NOT_COMPARABLE, None)
    assert (verdict.grade, verdict.confidence) == (Grade.NONE, Confidence.NONE)
    assert verdict.flags == (Flag.NOT_DRAFTED,)
    ran = numbers(verdict, "drafted_less", "k4")
    assert ran == {"drafted": pytest.approx(4 * share, abs=0.01), "k": 4}


def test_the_other_arms_are_judged_without_it_and_the_verdict_says_so():
    times, parts = drafting(*rows({"sql": WIN}, pairs=30), "k4", 0.3)

    (verdict,) = decide(times, parts)

    assert (verdict.action, verdict.k, verdict.grade) == (Action.SET_K, 2, Grade.MEASURED)
    assert verdict.flags == ()
    assert numbers(verdict, "drafted_less", "k4")["k"] == 4
    assert [one.arm for one in verdict.speedups] == ["k2"]


def lookup(times, parts, coverage, kept=0.9):
    """The rows as if rounds drafted only where a lookup found something, and then k tokens."""
    seldom = [
        dataclasses.replace(
            p,
            tested=(round(coverage * p.request_rounds),) * p.k,
            kept=(round(kept * coverage * p.request_rounds),) * p.k,
        )
        for p in parts
    ]
    found = []
    for t in times:
        accepted = round(kept * coverage * t.k * t.request_rounds)
        found.append(
            dataclasses.replace(
                t,
                proposed=round(coverage * t.k * t.request_rounds),
                accepted=accepted,
                emitted=t.request_rounds + accepted,
            )
        )
    return found, seldom


def test_a_lookup_that_seldom_finds_anything_still_follows_its_length():
    times, parts = lookup(*rows({"sql": WIN}, pairs=30), 0.3)

    (verdict,) = decide(times, parts)

    assert (verdict.action, verdict.k) == (Action.SET_K, 4)
    assert "drafted_less" not in codes(verdict)
    assert drafted_per_round(pairs_of(times, parts), "k4") == pytest.approx(4.0, rel=0.01)


# --- both sides of the bargain -------------------------------------------------------------


def with_requests(times, p95_ms, seed=0):
    """Requests timed by arm: most at 5 ms a token, a tenth at the percentile given."""
    random = np.random.default_rng(seed)
    timed = []
    for t in times:
        slow = bin_of(p95_ms[t.k] * np.exp(random.normal(0, 0.02)))
        timed.append(dataclasses.replace(t, tpot_bins=(bin_of(5.0), slow), tpot_counts=(90, 10)))
    return timed


@pytest.mark.parametrize(("after", "worse"), [(12.8, True), (8.8, False)])
def test_a_percentile_that_surely_worsens_is_said_beside_a_mean_that_gains(after, worse):
    times, parts = rows({"sql": WIN}, pairs=30)

    (verdict,) = decide(with_requests(times, {0: 8.8, 2: 8.8, 4: after}), parts)

    (p95,) = [
        one for one in verdict.tradeoffs if (one.arm, one.metric) == ("k4", Metric.TOKEN_TIME_P95)
    ]
    assert (verdict.action, verdict.k) == (Action.SET_K, 4)
    assert p95.low < after / 8.8 < p95.high
    assert p95.worsens == worse
    assert ("worsens" in codes(verdict)) == worse
    if worse:
        said = numbers(verdict, "worsens", "k4")
        assert (said["metric"], said["baseline"]) == (Metric.TOKEN_TIME_P95, "k0")
        assert said["after"] == pytest.approx(12.8, rel=0.05)


def test_capacity_is_the_device_s_busy_time_for_an_output_token():
    times, parts = rows({"sql": Kind({0: 1.0, 4: 1.5}, {0: 1.0, 4: 3.0})}, pairs=30)

    (verdict,) = decide(times, parts)

    (capacity,) = [one for one in verdict.tradeoffs if one.metric is Metric.DEVICE_TIME]
    # k = 4: 3.0 ms a round, 0.05 of them idle, 1.5 tokens; k = 0: 0.95 ms busy for one.
    assert capacity.ratio == pytest.approx((3.0 - 0.05) / 1.5 / 0.95, rel=0.03)
    assert capacity.worsens
    assert capacity.low < (3.0 - 0.05) / 1.5 / 0.95 < capacity.high


def test_memory_shows_as_requests_that_were_put_back():
    times, parts = rows({"sql": WIN}, pairs=30)
    crowded = [dataclasses.replace(t, preempted=2 + t.pair % 2 + 6 * (t.k == 4)) for t in times]

    (verdict,) = decide(crowded, parts)

    found = {one.arm: one for one in verdict.tradeoffs if one.metric is Metric.PREEMPTIONS}
    assert found["k4"].worsens
    assert not found["k2"].worsens
    assert (found["k4"].before, found["k4"].after) == pytest.approx((2.5 / 8, 8.5 / 8))


def test_a_part_that_no_block_knows_gives_no_figure():
    times, parts = rows({"sql": WIN})
    unknown = [dataclasses.replace(t, idle_us=None) for t in times]

    (verdict,) = decide(unknown, parts)

    assert {one.metric for one in verdict.tradeoffs} == set()


# --- how much is enough --------------------------------------------------------------------


def test_success_is_not_called_thin_because_it_takes_fewer_rounds():
    # 640 requests in 240 engine rounds: thousands of request-rounds.
    times, parts = rows({"sql": WIN}, pairs=20, requests=32, tokens_each=40)

    (verdict,) = decide(times, parts)

    (arm,) = [one for one in verdict.arms if one.arm == "k4"]
    assert arm.rounds < 300 < arm.request_rounds
    assert verdict.confidence is Confidence.HIGH


def test_an_arm_that_was_not_chosen_does_not_make_the_verdict_thin():
    times, parts = rows({"sql": WIN})
    seldom = [t for t in times if t.arm != "k2" or t.pair <= 4]

    (verdict,) = decide(seldom, parts)

    assert (verdict.k, verdict.confidence) == (4, Confidence.HIGH)
    assert "thin" not in codes(verdict)


# --- lengths that nobody ran ---------------------------------------------------------------


def test_a_shorter_lookup_finds_no_more_than_a_longer_one():
    # One round in ten finds something and keeps nearly all of it: 1.35 tokens a round.
    kind = Kind({0: 1.0, 4: 1.35}, {0: 1.0, 4: 1.05})
    times, parts = lookup(*rows({"sql": kind}, pairs=30), 0.1)

    found = {one.k: one for one in untried(paired(times, parts), decide(times, parts))}

    assert 1.0 < found[3].tokens_high < 1.4
    assert 1.0 < found[1].tokens_high < 1.15


def test_untried_lengths_are_ranked_within_their_segment():
    sure = Kind({0: 1.0, 2: 2.9, 4: 4.7}, {0: 1.0, 2: 1.05, 4: 1.1})
    times, parts = rows({"sql": sure, "logs": sure}, pairs=30)

    ranked = worth_trying(untried(paired(times, parts), decide(times, parts)))

    assert len(ranked) == 2
    for lengths in ranked.values():
        at_best = [one.at_best for one in lengths]
        assert at_best == sorted(at_best, reverse=True)
        assert len(at_best) > 1


# --- which traffic is a segment ------------------------------------------------------------


def mixed(pairs, alone, share=0.5):
    """Open traffic of two classes; in some pairs every request happened to be of one."""
    times, parts = rows({"sql": WIN}, pairs=pairs)
    others = [
        dataclasses.replace(p, class_="prose", request_rounds=round(share * p.request_rounds))
        for p in parts
        if p.pair > alone
    ]
    both = [
        dataclasses.replace(t, classes=("prose", "sql")) if t.pair > alone else t for t in times
    ]
    return both, [*parts, *others]


def test_a_block_that_happened_to_hold_one_class_makes_no_segment():
    (verdict,) = decide(*mixed(40, 5), design="closed_loop")

    assert verdict.segment.class_ is None
    assert verdict.pairs == 40


def test_a_stray_request_does_not_make_a_class_s_replica_a_mixture():
    (verdict,) = decide(*mixed(40, 30, share=0.05), design="closed_loop")

    assert verdict.segment.class_ == "sql"


def test_cohorts_of_one_class_stay_apart():
    verdicts = decide(*rows({"sql": WIN, "prose": WIN}))

    assert {verdict.segment.class_ for verdict in verdicts} == {"sql", "prose"}
