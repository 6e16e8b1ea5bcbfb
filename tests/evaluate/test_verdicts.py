"""Verdicts from block rows whose truth is known."""

import dataclasses
import json
import math
import random

import pytest
from block_rows import Kind, rows
from evaluate.reasons import codes, numbers

from specscope.evaluate.experiment.blocks import LeftOut
from specscope.evaluate.experiment.paired import paired
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.statistics.quantiles import bin_of
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.fleet import fleet_verdict
from specscope.evaluate.verdict.switch import compare_switches

COST = {0: 1.0, 2: 1.3, 4: 1.6}
WIN = Kind(tokens={0: 1.0, 2: 2.2, 4: 3.6}, cost_ms=COST)  # 1.69, 2.25
SHORT = Kind(tokens={0: 1.0, 2: 1.9, 4: 2.0}, cost_ms=COST)  # 1.46, 1.25
LOSE = Kind(tokens={0: 1.0, 2: 1.15, 4: 1.2}, cost_ms=COST)  # 0.88, 0.75
TIE = Kind(tokens={0: 1.0, 2: 1.3, 4: 1.6}, cost_ms=COST)  # 1, 1


def verdict_of(kind, **kwargs):
    rules = kwargs.pop("rules", None)
    (verdict,) = decide(*rows({"sql": kind}, **kwargs), rules)
    return verdict


def test_a_segment_that_gains_gets_its_best_draft_length():
    verdict = verdict_of(WIN)

    assert (verdict.action, verdict.k) == ("set_k", 4)
    assert (verdict.grade, verdict.confidence, verdict.applicable) == ("measured", "high", True)
    assert verdict.segment == Segment("sql", "0-1k", "65-256", "5-16")
    by_arm = {e.arm: e for e in verdict.speedups}
    assert by_arm["k4"].low < 2.25 < by_arm["k4"].high
    assert by_arm["k2"].low < 2.2 / 1.3 < by_arm["k2"].high


def test_the_draft_length_in_force_is_kept_where_it_is_among_the_best():
    verdict = verdict_of(WIN, rules=Rules(current=4))

    assert (verdict.action, verdict.k) == ("keep", 4)


def test_a_wrong_draft_length_is_changed():
    verdict = verdict_of(SHORT, rules=Rules(current=lambda segment, _: {"sql": 4}[segment.class_]))

    assert (verdict.action, verdict.k) == ("set_k", 2)


def test_a_segment_that_loses_is_switched_off():
    verdict = verdict_of(LOSE)

    assert (verdict.action, verdict.k) == ("disable", 0)
    assert all(e.loses for e in verdict.speedups)


def test_a_tie_is_called_no_difference_only_where_the_interval_is_narrow():
    narrow = verdict_of(TIE, noise=0.005)
    wide = verdict_of(TIE, noise=0.2)

    assert narrow.action == "no_difference"
    assert wide.action == "inconclusive"
    assert wide.k is None
    assert wide.pairs_needed > 20
    assert numbers(wide, "pairs_needed") == {"pairs": wide.pairs_needed}


def test_a_length_in_force_that_loses_is_disabled_though_another_ties():
    times, parts = rows({"sql": Kind({0: 1.0, 2: 1.3, 4: 1.4}, {0: 1.0, 2: 1.3, 4: 1.6})},
                        noise=0.005)  # fmt: skip

    (off,), (tied,) = (decide(times, parts, Rules(current=k)) for k in (4, 2))

    assert (off.action, off.k) == ("disable", 0)
    assert "current_loses" in codes(off)
    assert tied.action == "no_difference"


def test_without_target_only_blocks_the_verdict_asks_for_them():
    times, parts = rows({"sql": WIN, "prose": LOSE})

    verdicts = decide([t for t in times if t.arm != "k0"], parts)

    assert {v.action for v in verdicts} == {"collect_baseline"}
    assert {v.grade for v in verdicts} == {"none"}
    assert all(v.speedups == () and v.k is None for v in verdicts)
    assert fleet_verdict(verdicts).action == "collect_baseline"
    assert compare_switches(paired([t for t in times if t.arm != "k0"], parts)) == []


def test_arms_that_never_met_in_a_pair_are_not_compared():
    times, parts = rows({"sql": WIN})
    apart = [t for t in times if (t.arm == "k0") == (t.pair % 2 == 0)]

    (verdict,) = decide(apart, parts)

    assert verdict.action == "collect_baseline"


def test_without_speculative_blocks_nothing_is_decided():
    times, parts = rows({"sql": WIN})

    (verdict,) = decide([t for t in times if t.arm == "k0"], parts)

    assert verdict.action == "inconclusive"
    assert "no_arm" in codes(verdict)


def test_permuting_the_classes_permutes_the_verdicts():
    kinds = {"sql": WIN, "prose": LOSE, "logs": SHORT}
    times, parts = rows(kinds)
    renamed = {"sql": "prose", "prose": "logs", "logs": "sql"}

    before = {v.segment.class_: v for v in decide(times, parts)}
    after = {
        v.segment.class_: v
        for v in decide(
            [dataclasses.replace(t, classes=tuple(renamed[c] for c in t.classes)) for t in times],
            [dataclasses.replace(p, class_=renamed[p.class_]) for p in parts],
        )
    }

    assert {v.action for v in before.values()} == {"set_k", "disable"}
    for old, new in renamed.items():
        assert after[new].speedups == before[old].speedups
        assert (after[new].action, after[new].k) == (before[old].action, before[old].k)


def test_order_splitting_and_duplicates_change_nothing():
    times, parts = rows({"sql": WIN, "prose": LOSE})
    halves = []
    for whole in times:
        first = {
            name: getattr(whole, name) // 3
            for name in ("requests", "rounds", "request_rounds", "emitted", "accepted", "proposed")
        }
        rest = {name: getattr(whole, name) - value for name, value in first.items()}
        halves.append(
            dataclasses.replace(
                whole, **first, wall_us=whole.wall_us / 4, last_at=whole.first_at + 1
            )
        )
        halves.append(dataclasses.replace(whole, **rest, wall_us=whole.wall_us * 3 / 4))
    shuffled = halves + halves[:7] + times[:0]
    random.Random(3).shuffle(shuffled)

    plain, split = decide(times, parts), decide(shuffled, parts[::-1] + parts[:5])

    for one, other in zip(plain, split, strict=True):
        assert (one.action, one.k, one.pairs) == (other.action, other.k, other.pairs)
        for a, b in zip(one.speedups, other.speedups, strict=True):
            assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high))


def test_few_pairs_are_honest_and_never_applicable():
    verdict = verdict_of(WIN, pairs=4)

    assert verdict.confidence == "low"
    assert not verdict.applicable
    assert verdict.pairs_needed == 20
    assert numbers(verdict, "thin", "k4") == {"have": 4, "least": 20, "unit": "pairs"}


def test_four_pairs_leave_intervals_more_than_twice_as_wide_as_twenty():
    def width(pairs):
        found = [verdict_of(WIN, pairs=pairs, seed=seed).speedups[0] for seed in range(20)]
        return sum(math.log(e.high / e.low) for e in found)

    assert width(4) > 2 * width(20)


def test_one_pair_decides_nothing():
    verdict = verdict_of(WIN, pairs=1)

    assert verdict.action == "inconclusive"
    assert all(e.low is None and e.high is None for e in verdict.speedups)


def test_evidence_does_not_cross_an_epoch():
    times, parts = rows({"sql": WIN})
    later = [dataclasses.replace(t, epoch="e2") if t.pair > 10 else t for t in times]

    verdicts = decide(later, parts)

    assert [(v.epoch, v.pairs) for v in verdicts] == [("e1", 10), ("e2", 10)]


def test_a_verify_pass_that_is_too_fast_is_flagged_and_not_called_measured():
    times, parts = rows({"sql": WIN})
    impossible = [dataclasses.replace(t, verify_us=0.6 * t.verify_us) if t.k else t for t in times]

    (verdict,) = decide(impossible, parts)

    assert "INCONSISTENT_BASELINE" in verdict.flags
    assert verdict.grade != "measured"
    assert not verdict.applicable
    assert verdict.action == "set_k"


@pytest.mark.parametrize(("share", "pairs"), [(0.95, 20), (0.5, 1)])
def test_a_kernel_that_likes_few_rows_or_a_single_pair_is_no_contradiction(share, pairs):
    times, parts = rows({"sql": WIN}, pairs=pairs)
    quicker = [dataclasses.replace(t, verify_us=share * t.verify_us) if t.k else t for t in times]

    (verdict,) = decide(quicker, parts)

    assert verdict.flags == ()


@pytest.mark.parametrize(("kind", "action"), [(WIN, "not_comparable"), (LOSE, "disable")])
def test_of_a_baseline_that_pays_for_drafts_only_a_loss_is_believed(kind, action):
    times, parts = rows({"sql": kind})
    drafting = [
        dataclasses.replace(t, draft_us=0.1 * t.wall_us) if t.arm == "k0" else t for t in times
    ]

    (verdict,) = decide(drafting, parts)

    assert verdict.action == action
    assert verdict.flags == ("BASELINE_DRAFTS",)
    assert verdict.grade == "none"


def test_blocks_that_served_different_requests_are_left_out_and_counted():
    times, parts = rows({"sql": WIN})
    broken = [
        dataclasses.replace(t, requests=7) if t.arm == "k0" and t.pair <= 3 else t for t in times
    ]

    (verdict,) = decide(broken, parts)

    assert verdict.pairs == 17
    assert verdict.left_out == ((LeftOut.UNEQUAL_REQUESTS, 3),)


@pytest.mark.parametrize("design", ["cohort", "switchback"])
def test_an_engine_that_follows_no_arm_gets_no_verdict_about_them(design):
    times, parts = rows({"sql": WIN})
    speculative = [time for time in times if time.arm == "k4"]
    drafts_on = [dataclasses.replace(time, arm="k0") for time in speculative]

    (verdict,) = decide(speculative + drafts_on, parts, design=design)

    assert verdict.action == "inconclusive"
    assert verdict.left_out == ((LeftOut.DRAFTED_BEYOND, 20),)
    assert fleet_verdict([verdict]).action == "inconclusive"


def test_drafts_that_were_planned_before_a_block_began_do_not_void_it():
    times, parts = rows({"sql": WIN})
    spilt = [
        dataclasses.replace(t, proposed=t.request_rounds // 50) if t.arm == "k0" else t
        for t in times
    ]

    (verdict,) = decide(spilt, parts)

    assert (verdict.action, verdict.k) == ("set_k", 4)
    assert verdict.left_out == ()


def test_a_router_that_sees_the_arm_voids_a_switchback():
    times, parts = rows({"sql": WIN}, requests=100)
    skewed = [dataclasses.replace(t, requests=80) if t.arm == "k0" else t for t in times]

    (verdict,) = decide(skewed, parts, Rules(objective="throughput"), design="switchback")

    assert verdict.action == "not_comparable"
    assert "SAMPLE_RATIO" in verdict.flags


def test_where_requests_queue_a_faster_arm_rightly_admits_more():
    times, parts = rows({"sql": WIN}, requests=100)
    queued = [
        dataclasses.replace(t, requests=40 if t.arm == "k0" else 60, waiting=t.request_rounds)
        for t in times
    ]

    (verdict,) = decide(queued, parts, design="switchback")

    assert "tokens per second" in verdict.metric
    assert (verdict.action, verdict.k, verdict.flags) == ("set_k", 4, ())


def test_the_summary_of_an_arm_adds_up():
    verdict = verdict_of(WIN)
    arm = next(a for a in verdict.arms if a.arm == "k4")

    assert sum(arm.shares.values()) == pytest.approx(1.0)
    assert sum(arm.ms_per_token.values()) == pytest.approx(1e3 / arm.tokens_per_s)
    assert arm.tokens_per_round.value == pytest.approx(3.6, rel=0.01)
    assert arm.survival.k_tried == 4
    assert arm.survival.survival[0] == pytest.approx(2.6 / 4, abs=0.01)
    assert next(a for a in verdict.arms if a.arm == "k0").survival is None


def test_unknown_times_stay_unknown():
    times, parts = rows({"sql": WIN})
    blind = [dataclasses.replace(t, draft_us=None, verify_us=None) for t in times]

    (verdict,) = decide(blind, parts)

    assert "draft" not in verdict.arms[0].shares
    assert verdict.arms[0].shares["unseen"] == pytest.approx(0.9, abs=0.01)
    assert verdict.action == "set_k"


def with_tpot(times, ms_by_k):
    """Every request of a block at the same time per token, blocks busy for half a span at most."""
    span_us = 2 * max(t.wall_us for t in times)
    return [
        dataclasses.replace(
            t,
            tpot_bins=(bin_of(ms_by_k[t.k]),),
            tpot_counts=(t.requests,),
            first_at=0,
            last_at=int(1e3 * span_us),
        )
        for t in times
    ]


def test_open_arrivals_below_saturation_are_judged_by_time_per_token():
    # The engine keeps up in both arms, so tokens per second say nothing.
    flat = Kind(tokens={0: 1.0, 4: 1.0}, cost_ms={0: 1.0, 4: 1.0})
    times, parts = rows({"chat": flat})

    (verdict,) = decide(with_tpot(times, {0: 20.0, 4: 12.0}), parts, design="switchback")

    assert verdict.metric.startswith("mean over requests of time per output token")
    assert (verdict.action, verdict.k) == ("set_k", 4)
    assert verdict.speedups[0].value == pytest.approx(20 / 12, rel=0.02)


def test_without_times_per_token_a_latency_verdict_waits():
    times, parts = rows({"chat": WIN})

    (verdict,) = decide(times, parts, Rules(objective="latency"))

    assert verdict.action == "inconclusive"


@pytest.mark.parametrize(
    ("allowed", "action", "k"),
    [(50.0, "set_k", 4), (25.0, "set_k", 2), (15.0, "disable", 0), (5.0, "route", None)],
)
def test_a_class_is_not_given_more_delay_than_it_is_allowed(allowed, action, k):
    times, parts = rows({"chat": WIN})
    slow = with_tpot(times, {0: 10.0, 2: 20.0, 4: 40.0})

    (verdict,) = decide(slow, parts, Rules(tpot_allowance_ms={"chat": allowed}))
    assert "all_lose" not in codes(verdict)

    assert (verdict.action, verdict.k) == (action, k)


def test_no_blocks_give_no_verdict():
    assert decide([], []) == []
    assert fleet_verdict([]).action == "no_data"


def test_a_gate_beats_one_switch_where_classes_disagree():
    kinds = {"sql": WIN, "prose": LOSE}
    times, parts = rows(kinds)

    (story,) = compare_switches(paired(times, parts))

    at4 = 2 / (1 / 2.25 + 1 / 0.75)
    at2 = 2 / (1.3 / 2.2 + 1.3 / 1.15)
    gated = 2 / (1 / 2.25 + 1)
    by_k = {e.k: e for e in story.switches}
    assert by_k[4].low < at4 < by_k[4].high
    assert by_k[2].low < at2 < by_k[2].high
    assert story.gate.low < gated < story.gate.high
    assert story.gain.low > 1
    assert {segment.class_: k for segment, k in story.table} == {"sql": 4, "prose": 0}


def test_a_story_that_is_looked_at_while_it_grows_waits_and_is_wider():
    times, parts = rows({"sql": TIE, "logs": TIE}, pairs=40, noise=0.05)
    queued = [dataclasses.replace(t, waiting=t.request_rounds) for t in times]

    def told(count, often):
        seen = [t for t in queued if (t.pair - 1) % 40 < count]
        (story,) = compare_switches(paired(seen, parts, "switchback"), Rules(looked_at_often=often))
        return story.switches[0]

    early, often, once = told(9, True), told(40, True), told(40, False)

    assert (early.low, early.high) == (None, None)
    assert often.value == once.value
    # One sequence of the pairs of both segments is 1.55 times as wide.
    wider = math.log(often.high / often.low) / math.log(once.high / once.low)
    assert wider == pytest.approx(1.55, abs=0.1)


def test_a_gate_gains_nothing_where_all_classes_agree():
    (story,) = compare_switches(paired(*rows({"sql": WIN, "logs": WIN})))

    assert story.gain.value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kinds", "action"),
    [
        ({"a": WIN, "b": WIN}, "keep"),
        ({"a": WIN, "b": LOSE}, "route_selectively"),
        ({"a": LOSE, "b": LOSE}, "remove_everywhere"),
    ],
)
def test_the_verdict_on_the_whole(kinds, action):
    fleet = fleet_verdict(decide(*rows(kinds)))

    assert fleet.action == action
    assert len(fleet.gain) + len(fleet.fail) == len(kinds)


def test_nothing_undefined_reaches_the_output():
    for pairs in (1, 2, 20):
        times, parts = rows({"sql": WIN, "prose": LOSE}, pairs=pairs, noise=0.0, drift=0.0)
        results = [dataclasses.asdict(v) for v in decide(times, parts)]
        results += [dataclasses.asdict(s) for s in compare_switches(paired(times, parts))]

        json.dumps(results, allow_nan=False)


def test_counters_that_no_engine_yields_are_a_fault_whatever_they_gain():
    times, parts = rows({"sql": WIN})
    odd = [dataclasses.replace(t, accepted=t.proposed + 1) if t.arm == "k4" else t for t in times]

    (verdict,) = decide(odd, parts)

    assert verdict.action == "engine_fault"
    assert verdict.flags == ("IMPOSSIBLE_COUNTS",)
    assert verdict.grade == "none"
