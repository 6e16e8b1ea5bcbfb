"""Each threshold of a judgement, from both sides, by hand-made estimates and blocks."""

import math
from dataclasses import replace

import numpy as np
import pytest
from block_rows import Kind, rows

from specscope.evaluate.experiment import contrast
from specscope.evaluate.experiment.backlog import find_backlog
from specscope.evaluate.experiment.checks import usable_pairs
from specscope.evaluate.experiment.estimate import Estimate
from specscope.evaluate.experiment.measures import ArmContrast
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.experiment.summary import ArmSummary
from specscope.evaluate.statistics import sequential
from specscope.evaluate.statistics.quantiles import QuantileEstimate
from specscope.evaluate.statistics.ratio import LogRatio, paired_log_ratio, welch_half_width
from specscope.evaluate.verdict.allowance import keep_to_allowance
from specscope.evaluate.verdict.choice import Choice, Rules, choose
from specscope.evaluate.verdict.comparisons import Comparisons, Estimates, hold
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.enough import lacking, pairs_needed
from specscope.evaluate.verdict.flags import find_flags, overruled
from specscope.evaluate.verdict.tradeoffs import cache_lost
from specscope.evaluate.verdict.verdict import Action, Flag

WIN = Kind({0: 1.0, 4: 3.0}, {0: 10.0, 4: 15.0})
LOSS = Kind({0: 1.0, 4: 1.2}, {0: 10.0, 4: 20.0})


def estimate(arm, low, high, baseline="k0"):
    return Estimate(arm, (low * high) ** 0.5, low, high, 40, 0.95, baseline, k=int(arm[1:]))


def found(*speedups, between=()):
    both = tuple(way for two in between for way in (two, two.reversed()))
    return Estimates(tuple(e.arm for e in speedups), True, speedups, both)


def action(*speedups, between=(), current=None):
    choice = choose(found(*speedups, between=between), Rules(), current)
    return choice.action, choice.k


def test_a_gain_that_is_surely_under_two_percent_is_no_gain():
    assert action(estimate("k4", 1.005, 1.019)) == (Action.NO_DIFFERENCE, None)
    assert action(estimate("k4", 1.005, 1.021)) == (Action.SET_K, 4)
    assert action(estimate("k4", 0.985, 1.015)) == (Action.NO_DIFFERENCE, None)
    assert action(estimate("k4", 0.97, 1.015)) == (Action.INCONCLUSIVE, None)


def test_of_the_best_the_length_in_force_is_kept_and_else_the_shortest_chosen():
    arms = estimate("k2", 1.2, 1.4), estimate("k4", 1.25, 1.45), estimate("k8", 1.1, 1.2)
    tied = [estimate("k4", 0.98, 1.08, "k2"), estimate("k8", 0.8, 0.9, "k4")]

    assert action(*arms, between=tied) == (Action.SET_K, 2)
    assert action(*arms, between=tied, current=4) == (Action.KEEP, 4)
    assert action(*arms, between=tied, current=8) == (Action.SET_K, 2)


def test_an_arm_that_never_met_the_fastest_does_not_equal_it():
    arms = estimate("k2", 1.2, 1.4), estimate("k4", 1.25, 1.45)

    assert action(*arms) == (Action.SET_K, 4)
    assert choose(found(*arms), Rules()).best == ("k4",)


def test_a_loss_of_the_length_in_force_switches_off_and_one_that_does_not_matter_does_not():
    slow, small = estimate("k4", 0.9, 0.95), estimate("k4", 0.985, 0.995)
    open_ = estimate("k8", 0.9, 1.1)

    assert action(slow, open_, current=4) == (Action.DISABLE, 0)
    assert action(slow, open_, current=8) == (Action.INCONCLUSIVE, None)
    assert action(small, current=4) == (Action.NO_DIFFERENCE, None)
    assert action(slow) == (Action.DISABLE, 0)
    assert action(slow, estimate("k8", 0.99, 1.01)) == (Action.NO_DIFFERENCE, None)


def test_the_best_guess_without_a_gain_is_target_only():
    assert choose(found(estimate("k4", 0.8, 0.9)), Rules()).point_k == 0
    assert choose(found(estimate("k2", 1.0, 1.2), estimate("k4", 1.1, 1.3)), Rules()).point_k == 4


@pytest.mark.parametrize(
    ("pairs", "requests", "tokens", "units"),
    [
        (19, 8, 1000, {"pairs"}),
        (20, 8, 1000, set()),
        (20, 1, 1000, {"requests"}),
        (30, 1, 1000, set()),
        (20, 8, 4, {"rounds"}),  # 160 requests of one round at k = 4
    ],
)
def test_evidence_is_thin_below_20_pairs_30_requests_or_300_request_rounds(
    pairs, requests, tokens, units
):
    blocks, parts = rows({"sql": WIN}, pairs=pairs, requests=requests, tokens_each=tokens)
    (verdict,) = decide(blocks, parts)

    thin = {reason["unit"] for reason in verdict.reasons if reason.code == "thin"}
    assert thin == units
    assert verdict.confidence == ("low" if units else "high")


def test_request_rounds_count_and_not_rounds_of_the_engine():
    pairs = pairs_of(*rows({"sql": WIN}, pairs=20, requests=64, tokens_each=15))
    choice = choose(found(replace(estimate("k4", 1.5, 2.5), pairs=20)), Rules())

    assert sum(pair.blocks["k4"].rounds for pair in pairs) < 300
    assert lacking(pairs, choice, Rules()) == []


@pytest.mark.parametrize(("drafting", "flagged"), [(0.019, False), (0.021, True)])
def test_a_baseline_that_drafts_for_a_fiftieth_of_its_time_is_none(drafting, flagged):
    blocks, parts = rows({"sql": WIN})
    paid = [replace(b, draft_us=drafting * b.wall_us) if b.arm == "k0" else b for b in blocks]

    flags = find_flags(pairs_of(paid, parts), ["k4"], "cohort", 0.95)

    assert flags == ({Flag.BASELINE_DRAFTS} if flagged else set())


@pytest.mark.parametrize(("share", "flagged"), [(0.87, True), (0.93, False)])
def test_a_verify_pass_that_is_a_tenth_faster_than_a_target_only_one_is_impossible(share, flagged):
    blocks, parts = rows({"sql": WIN}, noise=0.001)
    fast = [
        replace(b, verify_us=b.verify_us * share, requests=8) if b.arm == "k4" else b
        for b in blocks
    ]

    flags = find_flags(pairs_of(fast, parts), ["k4"], "cohort", 0.95)

    assert flags == ({Flag.INCONSISTENT_BASELINE} if flagged else set())


@pytest.mark.parametrize(
    "impossible",
    [lambda b: replace(b, accepted=b.proposed + 1), lambda b: replace(b, accepted=b.accepted - 9)],
)
def test_counts_that_no_engine_makes_are_flagged(impossible):
    blocks, parts = rows({"sql": WIN})
    odd = [impossible(b) if b.arm == "k4" else b for b in blocks]

    assert find_flags(pairs_of(odd, parts), ["k4"], "cohort", 0.95) == {Flag.IMPOSSIBLE_COUNTS}


def test_a_baseline_that_pays_for_drafts_overrules_gains_and_no_loss():
    flags = {Flag.BASELINE_DRAFTS}

    assert overruled(Action.SET_K, flags) is Action.NOT_COMPARABLE
    assert overruled(Action.DISABLE, flags) is Action.DISABLE
    assert overruled(Action.INCONCLUSIVE, flags) is Action.INCONCLUSIVE
    assert overruled(Action.DISABLE, {Flag.SAMPLE_RATIO}) is Action.NOT_COMPARABLE


def summary(arm, low):
    late = QuantileEstimate(low + 1.0, low, low + 2.0, 20)
    return replace(_SUMMARY, arm=arm, tpot_p95_ms=late)


_SUMMARY = ArmSummary(**{
    name: field.default if field.default is not field.default_factory else None
    for name, field in ArmSummary.__dataclass_fields__.items()
})  # fmt: skip


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ({"k4"}, (Action.SET_K, 2)),
        ({"k4", "k2"}, (Action.DISABLE, 0)),
        ({"k4", "k2", "k0"}, (Action.ROUTE, None)),
        ({"k2", "k0"}, (Action.SET_K, 4)),
    ],
)
def test_a_choice_that_is_too_slow_gives_way_to_a_winner_then_target_only_then_another_pool(
    slow, expected
):
    speedups = estimate("k1", 0.9, 0.95), estimate("k2", 1.1, 1.2), estimate("k4", 1.3, 1.4)
    choice = Choice(Action.SET_K, "k4", 4, ("k4",), speedups, 4)
    arms = [summary(arm, 60.0 if arm in slow else 40.0) for arm in ("k0", "k1", "k2", "k4")]

    kept = keep_to_allowance(choice, arms, 50.0)

    assert (kept.action, kept.k) == expected
    assert keep_to_allowance(choice, arms, None) is choice


def test_a_cache_that_a_drafter_halves_is_twice_as_scarce():
    lost = cache_lost({"clean": 1000, "k4": 500}, "k4", "clean")

    assert (lost.ratio, lost.before, lost.after, lost.worsens) == (2.0, 1000.0, 500.0, True)
    assert not cache_lost({"clean": 500, "k4": 500}, "k4", "clean").worsens


@pytest.mark.parametrize(("low", "worsens"), [(0.99, False), (1.01, True), (None, False)])
def test_what_may_be_chance_does_not_worsen(low, worsens):
    one = replace(cache_lost({"k0": 10, "k4": 5}, "k4", "k0"), low=low)

    assert one.worsens is worsens


@pytest.mark.parametrize(("share", "ran"), [(0.55, False), (0.65, True)])
def test_an_arm_that_drafts_under_three_fifths_of_its_length_did_not_run(share, ran):
    blocks, _ = rows({"sql": Kind({0: 1.0, 4: 1.5}, {0: 10.0, 4: 12.0})})
    cut = [
        replace(b, proposed=round(share * b.proposed), full_tokens=None) if b.arm == "k4" else b
        for b in blocks
    ]

    usable = usable_pairs(pairs_of(cut, []), "cohort")

    assert all(("k4" in pair.blocks) is ran for pair in usable.pairs)
    assert [one.arm for one in usable.short] == ([] if ran else ["k4"])


@pytest.mark.parametrize(("beyond", "left_out"), [(0.04, 0), (0.06, 20)])
def test_a_block_that_drafts_beyond_its_arm_is_left_out(beyond, left_out):
    blocks, parts = rows({"sql": WIN})
    drafted = [replace(b, proposed=b.proposed + round(beyond * b.request_rounds)) for b in blocks]

    usable = usable_pairs(pairs_of(drafted, parts), "cohort")

    assert sum(usable.left_out.values()) == left_out


def test_blocks_of_a_cohort_serve_the_same_requests():
    blocks, parts = rows({"sql": WIN})
    uneven = [replace(b, requests=9) if b.arm == "k4" and b.pair <= 5 else b for b in blocks]
    pairs = pairs_of(uneven, parts)

    assert dict(usable_pairs(pairs, "cohort").left_out) == {"unequal_requests": 5}
    assert dict(usable_pairs(pairs, "switchback").left_out) == {}


@pytest.mark.parametrize(("uneven", "told"), [(3, False), (4, True), (20, True)])
def test_a_fifth_of_pairs_with_a_queue_in_one_arm_is_a_backlog(uneven, told):
    blocks, parts = rows({"sql": WIN})
    queued = [
        replace(b, waiting_first=0, waiting_last=90 if b.arm == "k0" and b.pair <= uneven else 0)
        for b in blocks
    ]

    backlog = find_backlog(pairs_of(queued, parts), "k4")

    assert (backlog is not None) is told
    if backlog:
        assert backlog.share == uneven / 20


@pytest.mark.parametrize(
    ("waiting", "share"),
    [(0.05, None), (0.0775, None), (0.0825, 13 / 60), (0.125, 0.5), (0.2, 1.0), (3.0, 1.0)],
)
def test_a_queue_that_one_arm_leaves_counts_as_far_as_it_is_one_of_saturation(waiting, share):
    blocks, parts = rows({"sql": WIN})
    queued = [
        replace(b, waiting_first=0, waiting_last=waiting * b.requests if b.arm == "k0" else 0)
        for b in blocks
    ]

    backlog = find_backlog(pairs_of(queued, parts), "k4")

    assert (backlog and backlog.share) == (share and pytest.approx(share))


def queued_early(first, last, pairs=10, slow="k0"):
    """Pairs of which the first so many begin, and end under k0, with a queue in running requests;
    there an arm takes twice the time. All later ones are saturated under k0."""
    blocks, parts = rows({"sql": WIN}, noise=0.0)
    queued = []
    for block in blocks:
        early = block.pair <= pairs
        ends = (last if early else 1.0) if block.arm == "k0" else 0.0
        queued.append(
            replace(
                block,
                wall_us=block.wall_us * (2.0 if early and block.arm == slow else 1.0),
                waiting_first=block.requests * (first if early else 1.0),
                waiting_last=block.requests * ends,
            )
        )
    return pairs_of(queued, parts)


def capacity(*given, **named):
    return find_backlog(queued_early(*given, **named), "k4").capacity


def test_blocks_count_for_the_capacity_as_far_as_they_are_saturated():
    """The arm's by the queue they begin with, target-only's by the lesser of both ends."""
    later = capacity(0.0, 0.0)

    assert capacity(0.05, 0.05) == pytest.approx(later)
    assert capacity(0.2, 0.2) == pytest.approx(1.5 * later, rel=0.05)
    assert later < capacity(0.06, 0.06) < 1.1 * later
    assert capacity(0.2, 0.05) == pytest.approx(later, rel=0.1)
    assert capacity(0.0, 0.0, slow="k4") == pytest.approx(later)
    assert capacity(0.2, 0.0, slow="k4") == pytest.approx(later / 1.5, rel=0.1)


@pytest.mark.parametrize(("saturated", "known"), [(2, False), (3, True)])
def test_a_capacity_rests_on_three_saturated_blocks(monkeypatch, saturated, known):
    freedoms = []
    width = welch_half_width

    def half_width(parts, level):
        freedoms.extend(freedom for _, freedom in parts)
        return width(parts, level)

    monkeypatch.setattr("specscope.evaluate.experiment.backlog.welch_half_width", half_width)
    backlog = find_backlog(queued_early(1.0, 0.0, pairs=20 - saturated), "k4")

    assert (backlog.capacity is not None, backlog.low is not None) == (known, known)
    assert freedoms == ([19.0, 2.0] if known else [])


def test_the_capacity_under_a_backlog_has_an_interval():
    blocks, parts = rows({"sql": WIN}, noise=0.2)
    queued = [replace(b, waiting_first=90, waiting_last=90 if b.arm == "k0" else 0) for b in blocks]

    backlog = find_backlog(pairs_of(queued, parts), "k4")

    assert backlog.low < 0.97 * backlog.capacity


def test_pairs_needed_are_the_fewest_whose_sequence_excludes_what_is_seen():
    own = np.random.default_rng(3).normal(0.02, 0.1, 30)
    one = of_pairs(own)

    needed = contrast.pairs_needed(one, 0.95, 0.05, looked_at_often=True)

    level = (1.0 - sequential.SIGN_SHARE) * 0.05
    before, after = (one.pair_sd * sequential.reach(pairs, level) for pairs in (needed - 1, needed))
    assert after < max(math.log1p(0.05), abs(one.delta)) <= before


def of_pairs(own):
    own = np.asarray(own)
    scores = (own - own.mean()) / len(own)
    se = math.sqrt(len(own) / (len(own) - 1) * float(scores @ scores))
    return LogRatio(float(own.mean()), se, scores, own=own, null=own)


def test_a_sequence_begins_at_20_pairs_and_at_30_if_their_scores_are_skewed():
    even = np.tile([0.1, -0.1], 15)
    skewed = np.where(np.arange(30) % 10 == 0, 1.0, 0.0)

    shown = [
        [n for n in range(10, 31) if sequential.interval(of_pairs(one[:n])) is not None]
        for one in (even, skewed)
    ]

    assert shown == [list(range(20, 31)), [30]]


def test_an_error_of_pairs_has_the_degrees_of_freedom_that_the_mean_leaves():
    x1, x0 = np.array([11.0, 10.0, 12.0, 11.5]), np.array([10.0, 9.5, 10.5, 10.0])
    ones = np.full(4, 10.0)

    contrast = paired_log_ratio(x1, ones, x0, ones)

    scores = (x1 - x1.mean()) / x1.sum() - (x0 - x0.mean()) / x0.sum()
    assert contrast.se == pytest.approx(math.sqrt(4 / 3 * float(scores @ scores)))


def test_a_class_with_nine_tenths_of_a_block_names_its_pair():
    def pairs(share):
        blocks, parts = rows({"sql": WIN}, pairs=4, noise=0.0)
        mixed = [replace(b, classes=("prose", "sql")) for b in blocks]
        some = [replace(p, request_rounds=round(share * p.request_rounds)) for p in parts]
        rest = [
            replace(p, class_="prose", request_rounds=p.request_rounds - s.request_rounds)
            for p, s in zip(parts, some, strict=True)
        ]
        return pairs_of(mixed, [*some, *rest])

    assert {pair.segment.class_ for pair in pairs(0.92)} == {"sql"}
    assert {pair.segment.class_ for pair in pairs(0.85)} == {None}
    assert Segment().class_ is None


def needs(needed, current=None):
    """Pairs to an action. needed: by arm, its value and the pairs that it would take."""
    speedups, compared = [], []
    for arm, (value, pairs) in needed.items():
        own = math.log(value) + np.tile([1.0, -1.0], 15) * 0.05 * math.sqrt(pairs / 30)
        one = ArmContrast(arm, "k0", of_pairs(own))
        compared.append(one)
        speedups.append(replace(one.at(0.95), low=0.8, high=1.25, p=0.5))
    found_ = Comparisons(tuple(needed), True, tuple(compared), ())
    choice = Choice(
        Action.INCONCLUSIVE, None, None, tuple(needed), tuple(speedups), 0, tuple(needed)
    )
    return pairs_needed(found_, choice, Rules(), decided=False, current=current)


def test_the_first_winner_or_a_loss_of_the_length_in_force_is_what_is_waited_for():
    near, far = needs({"k4": (1.06, 60)}), needs({"k2": (1.06, 600)})

    assert near < far
    assert needs({"k4": (1.06, 60), "k2": (1.06, 600)}) == near
    assert needs({"k4": (0.94, 60), "k2": (0.94, 600)}, current=4) == needs({"k4": (0.94, 60)})
    assert needs({"k4": (0.94, 60), "k2": (0.94, 600)}) == needs({"k2": (0.94, 600)})


def test_a_single_pair_takes_no_share_of_the_error():
    def contrast(arm, pairs):
        return ArmContrast(arm, "k0", of_pairs([0.02, 0.03, 0.025, 0.04, 0.03, 0.035][:pairs]))

    alone = Comparisons(("k4",), True, (contrast("k4", 6),), ())
    single = ArmContrast("k2", "k0", LogRatio(0.1, None, np.zeros(1)))
    beside = Comparisons(("k2", "k4"), True, (single, contrast("k4", 6)), ())

    (one,) = hold({0: alone}, 0.95)[0].speedups
    _, same = hold({0: beside}, 0.95)[0].speedups

    assert single.p is None
    assert (one.wins, same.wins, same.level) == (True, True, 0.975)
