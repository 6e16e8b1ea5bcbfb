"""What may be claimed from pairs: exact tests, and only the comparisons that change an action."""

import dataclasses
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from block_rows import Kind, block, part

from specscope.evaluate.experiment.measures import ArmContrast
from specscope.evaluate.statistics import randomisation, sequential, serial
from specscope.evaluate.statistics.multiplicity import bonferroni, holm_levels
from specscope.evaluate.statistics.ratio import LogRatio, paired_log_ratio
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.comparisons import Comparisons, hold
from specscope.evaluate.verdict.decide import decide

OFTEN = Rules(looked_at_often=True)


def segment(logs, class_="chat", first=1):
    """Blocks of k0 and of arms whose log speedups are given pair by pair: {k: [pairs]}."""
    random = np.random.default_rng(first)
    lengths = sorted(logs)
    kind = Kind({k: 1.0 + k / 2 for k in (0, *lengths)}, {k: 1.0 + k / 2 for k in (0, *lengths)})
    blocks, parts = [], []
    for pair in range(len(logs[lengths[0]])):
        shared = math.exp(random.normal(0, 0.2))
        for k in (0, *lengths):
            slow = shared * math.exp(-logs[k][pair] if k else 0.0)
            whole = block(class_, k, kind, first + pair, slow, 8, 1000)
            blocks.append(replace(whole, draft_us=None, verify_us=None))
            parts.append(part(blocks[-1], class_))
    return blocks, parts


def test_signs_are_counted_exactly_and_the_saddlepoint_continues_them():
    random = np.random.default_rng(1)
    scores = random.standard_t(2, 12) + 0.8
    flips = np.array(list(product((-1, 1), repeat=12))) @ np.abs(scores)
    exact = np.mean(np.abs(flips) >= abs(scores.sum()) - 1e-12)

    assert randomisation.sign_flip_p(scores) == pytest.approx(exact)
    assert randomisation.sign_flip_p(np.ones(5)) == 2.0**-4
    assert randomisation.sign_flip_p(np.ones(30)) == 2.0**-29
    assert randomisation.sign_flip_p(np.zeros(4)) == 1.0
    wide = random.exponential(1, 22) * np.where(random.random(22) < 0.8, 1, -0.5)
    drawn = random.choice([-1, 1], (200_000, 22)) @ np.abs(wide)
    share = np.mean(np.abs(drawn) >= abs(wide.sum()))
    assert randomisation.sign_flip_p(wide) == pytest.approx(share, rel=0.1)


def test_the_exact_test_errs_as_often_as_it_says_under_the_heaviest_tails():
    random = np.random.default_rng(2)

    for draw in (lambda: random.standard_cauchy(24), lambda: random.choice([-1.0, 1.0], 24)):
        false = np.mean([randomisation.sign_flip_p(draw()) <= 0.05 for _ in range(1000)])
        assert false <= 0.07


def test_bets_on_signs_err_rarely_at_all_looks_together():
    random = np.random.default_rng(3)
    false = 0
    for _ in range(300):
        contrasts = random.standard_cauchy(60)
        looks = (randomisation.sign_e_value(contrasts[:n]) for n in range(1, 61, 3))
        false += max(looks) >= 1 / 0.05

    assert false <= 300 * 0.05
    assert randomisation.sign_e_value(np.ones(12)) > 400
    assert randomisation.sign_e_value([]) == 1.0


def test_claims_that_tie_have_one_level_in_whatever_order_they_come():
    tied = [1e-4, 0.001, 0.001, 0.5]

    levels = holm_levels(tied, 0.95)

    assert levels == pytest.approx([1 - 0.05 / 4, 1 - 0.05 / 3, 1 - 0.05 / 3, 1 - 0.05])
    assert holm_levels(tied[::-1], 0.95) == levels[::-1]
    assert holm_levels([0.02, 0.02, 0.02], 0.95) == pytest.approx([1 - 0.05 / 3] * 3)


def test_holm_rejects_what_its_levels_say():
    p_values = [0.01, 0.04, 0.001, 0.5]

    levels = holm_levels(p_values, 0.95)

    alphas = [1 - level for level in levels]
    assert alphas == pytest.approx([0.05 / 3, 0.05 / 2, 0.05 / 4, 0.05 / 2])
    assert [p <= alpha for p, alpha in zip(p_values, alphas, strict=True)] == [1, 0, 1, 0]
    assert holm_levels([], 0.95) == []


def test_the_p_value_of_a_sequence_is_where_its_interval_touches_no_difference():
    random = np.random.default_rng(4)
    for effect in (0.02, 0.06, 0.3):
        x = np.exp(random.normal(effect, 0.1, 40))
        one = np.ones(40)
        found = paired_log_ratio(x, one, one, one)
        p = sequential.p_value(found)
        if 1e-100 < p < 0.3:
            inside = sequential.interval(found, p * 0.99)
            outside = sequential.interval(found, p * 1.01)
            assert inside[0] <= 0 <= inside[1]
            assert not outside[0] <= 0 <= outside[1]


def test_an_arm_without_an_interval_does_not_equal_the_best():
    random = np.random.default_rng(5)
    k2 = random.normal(math.log(1.83), 0.05, 26)
    behind = 0.12 + np.where(np.arange(26) == 7, 0.6, random.normal(0, 0.01, 26))

    (verdict,) = decide(*segment({2: k2, 4: k2 + behind}), OFTEN)

    two = next(e for e in verdict.between if (e.arm, e.baseline) == ("k2", "k4"))
    assert two.low is None  # one pair in 26 makes the scores skewed: no interval before 30
    assert two.loses
    assert verdict.best == ("k4",)
    assert (verdict.action, verdict.k, verdict.confidence) == ("set_k", 4, "high")


def test_pairs_that_all_win_win_however_skewed_they_are():
    random = np.random.default_rng(6)
    effects = math.log(1.5) + random.exponential(0.15, 29)
    effects[11] += 1.6

    (verdict,) = decide(*segment({4: effects}), OFTEN)

    (speedup,) = verdict.speedups
    assert speedup.low is None
    assert speedup.p < 1e-4
    assert (verdict.action, verdict.k, verdict.confidence) == ("set_k", 4, "high")


def test_equal_arms_are_not_told_apart_at_any_look():
    random = np.random.default_rng(7)
    wrong = 0
    for _ in range(60):
        noise = random.standard_t(2, 36) * 0.03
        blocks, parts = segment({4: noise})
        for look in (8, 14, 20, 28, 36):
            some = [b for b in blocks if b.pair <= look], [p for p in parts if p.pair <= look]
            (verdict,) = decide(*some, OFTEN)
            if verdict.action in ("set_k", "disable"):
                wrong += 1
                break

    assert wrong <= 5


def test_only_the_arm_that_can_change_the_action_asks_for_pairs():
    random = np.random.default_rng(8)
    noise = random.normal(0, 0.13, 20)
    noise -= noise.mean()
    rows = segment({2: math.log(1.10) + noise, 4: math.log(1.004) + 1.3 * noise[::-1]})
    for place in range(9):  # other traffic, which shares the error rate
        others = {2: random.normal(0, 0.05, 20), 4: random.normal(0, 0.05, 20)}
        more = segment(others, f"c{place}", first=100 * (place + 1))
        rows = tuple([*left, *right] for left, right in zip(rows, more, strict=True))

    verdict = next(v for v in decide(*rows) if v.segment.class_ == "chat")

    assert verdict.action == "inconclusive"
    assert 20 < verdict.pairs_needed < 60  # k4, 1.004, would take hundreds


def test_claims_step_down_so_one_clear_segment_helps_the_next():
    random = np.random.default_rng(9)
    sure = segment({4: random.normal(0.5, 0.02, 24)}, "sure")
    effect = random.normal(0, 0.05, 24)
    near = 0.0265 + (effect - effect.mean()) / effect.std() * 0.05
    rows = tuple([*a, *b] for a, b in zip(sure, segment({4: near}, "near", first=100), strict=True))

    by_class = {v.segment.class_: v.speedups[0] for v in decide(*rows)}

    assert by_class["near"].level == pytest.approx(0.95)
    assert by_class["sure"].level == pytest.approx(bonferroni(0.95, 2))
    assert by_class["near"].wins
    assert 0.025 < by_class["near"].p < 0.05  # Bonferroni over both would not tell


def compared(arm, baseline, delta, se):
    scores = np.array([1.0, -1.0] * 15) * se * math.sqrt(29) / 30
    return ArmContrast(arm, baseline, LogRatio(delta, se, scores, own=np.full(30, delta)))


def test_faster_than_what_is_faster_than_target_only_is_faster():
    segment_ = Comparisons(
        arms=("k2", "k4"),
        together=True,
        speedups=(compared("k2", "k0", 0.2, 0.02), compared("k4", "k0", 0.3, 0.3)),
        between=(compared("k4", "k2", 0.1, 0.01),),
    )

    found = hold({"all": segment_}, 0.95)["all"]

    by_arm = {one.arm: one for one in found.speedups}
    assert by_arm["k4"].p > 0.05
    assert by_arm["k4"].implied
    assert by_arm["k4"].wins
    assert not by_arm["k2"].implied
    ways = [(two.arm, two.baseline, two.wins) for two in found.between]
    assert ways == [("k2", "k4", False), ("k4", "k2", True)]


def test_independent_estimates_add_their_variances_in_one_sequence():
    random = np.random.default_rng(10)
    one = random.normal(0, 1, 40)
    scores = (one - one.mean()) / 40
    se = math.sqrt(40 / 39 * float(scores @ scores))

    alone = sequential.half_width(se, scores, 0.05)
    two = sequential.half_width_of_sum([(se, scores)] * 2, 0.05)
    eight = sequential.half_width_of_sum([(se, scores)] * 8, 0.05)

    assert sequential.half_width_of_sum([(se, scores)], 0.05) == pytest.approx(alone)
    assert two / alone == pytest.approx(math.sqrt(2), rel=0.05)  # 2.2 with shares of the error
    assert eight / alone == pytest.approx(math.sqrt(8), rel=0.15)
    assert sequential.half_width_of_sum([(se, scores), (se, scores[:4])], 0.05) is None


def test_a_stacked_sequence_holds_at_all_looks_together():
    random = np.random.default_rng(11)
    missed = 0
    for _ in range(200):
        drawn = random.standard_t(4, (2, 30))
        for look in range(10, 61, 5):
            halves = [drawn[0][: min(look, 30)], drawn[1][: max(0, look - 30)]]
            parts = [(d.std(ddof=1) / math.sqrt(len(d)), d - d.mean()) for d in halves if len(d)]
            half = sequential.half_width_of_sum(parts, 0.05)
            if half is not None and abs(sum(d.mean() for d in halves if len(d))) > half:
                missed += 1
                break

    assert missed <= 10


# share: of the variance that has the memory; the rest is noise, under which it hides.
@pytest.mark.parametrize(
    ("memory", "share", "least", "most"),
    [
        (0.0, 1.0, 0.94, 0.98),
        (0.5, 1.0, 0.92, 0.98),
        (0.7, 1.0, 0.91, 0.97),
        (0.7, 0.5, 0.88, 0.96),
    ],
)
def test_intervals_of_a_wandering_effect_cover_it(memory, share, least, most):
    random = np.random.default_rng(12)
    held = independent = 0
    for _ in range(400):
        effect = np.zeros(48)
        effect[0] = random.normal()
        for pair in range(1, 48):
            fresh = random.normal(0, math.sqrt(1 - memory**2))
            effect[pair] = memory * effect[pair - 1] + fresh
        effect = math.sqrt(share) * effect + math.sqrt(1 - share) * random.normal(size=48)
        scores = (effect - effect.mean()) / 48
        plain = LogRatio(effect.mean(), math.sqrt(48 / 47 * float(scores @ scores)), scores)
        for contrast, wide in ((plain, False), (serial.widened(plain, [0] * 48), True)):
            low, high = contrast.interval()
            held += wide and low <= 0 <= high
            independent += (not wide) and low <= 0 <= high

    assert least <= held / 400 <= most
    assert memory == 0.0 or independent / 400 < 0.8


def test_pairs_of_different_replicas_are_no_neighbours():
    scores = np.array([1.0, -1.0] * 12)

    assert serial.inflation([np.sort(scores)]) > 3.0
    assert serial.inflation(np.split(np.sort(scores), 24)) == pytest.approx(1.0, abs=0.15)
    assert serial.inflation([scores]) == 1.0
    few = LogRatio(0.1, 0.1, np.sort(scores)[:10])
    assert serial.widened(few, [0] * 10) is few


def test_pairs_with_a_memory_are_worth_fewer_degrees_of_freedom():
    scores = np.repeat([1.0, -1.0, 0.5, -0.5], 6)
    alike = LogRatio(0.1, math.sqrt(24 / 23 * float(scores @ scores)), scores)

    one, many = serial.widened(alike, [0] * 24), serial.widened(alike, list(range(24)))

    assert (one.se > 2 * alike.se, one.worth < 6) == (True, True)
    assert many.se == pytest.approx(alike.se, rel=0.05)
    assert many.worth > 20
    low, high = one.interval()
    assert high - low > 2 * 2.4 * one.se  # Student's t of these degrees of freedom


def test_a_sequence_of_pairs_with_a_memory_is_as_long_as_they_are_worth():
    scores = np.tile([0.01, -0.01], 20)
    plain = LogRatio(0.1, math.sqrt(40 / 39 * float(scores @ scores)), scores)
    alike = dataclasses.replace(plain, worth=9.0)

    low, high = sequential.interval(alike, 0.05)

    half = plain.se * math.sqrt(10) * sequential.reach(10, 0.05)
    assert (low, high) == pytest.approx((0.1 - half, 0.1 + half))
    assert high - low > np.diff(sequential.interval(plain, 0.05))[0]
    edge = dataclasses.replace(alike, delta=half)
    assert sequential.p_value(edge) == pytest.approx(0.05, rel=1e-6)
