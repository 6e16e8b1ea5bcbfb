"""Coverage, false positives and interference, against truths that a simulation knows."""

import math

import numpy as np
import pytest
from block_rows import Kind, rows
from engine_simulator import Engine, switchback
from scipy import stats

from specscope.evaluate.experiment.paired import paired
from specscope.evaluate.statistics import sequential
from specscope.evaluate.statistics.ratio import paired_log_ratio, ratio_of_sums
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.switch import compare_switches


def request_contrast(finished):
    """The tempting comparison inside shared batches: time per token of the two halves."""
    per_token = {
        arm: sum(ms for spec, ms, _ in finished if spec is arm)
        / sum(tokens for spec, _, tokens in finished if spec is arm)
        for arm in (False, True)
    }
    return per_token[False] / per_token[True]


@pytest.fixture(scope="module")
def truth():
    """Everybody speculates against nobody does, ten simulated minutes each."""
    rates = []
    for k in (5, 0):
        engine = Engine(batch=128, a=4, b=6, k=5, seed=11 + k)
        engine.run(30, k)
        stretch = engine.run(600, k)
        rates.append(stretch.tokens / stretch.wall_ms)
    return rates[0] / rates[1]


def test_the_simulated_engine_loses_with_five_tokens_at_batch_128(truth):
    assert truth == pytest.approx(0.893, abs=0.01)


def test_blocks_recover_a_loss_that_requests_report_as_a_gain(truth):
    engine = Engine(batch=128, a=4, b=6, k=5, seed=3)
    mixed = Engine(batch=128, a=4, b=6, k=5, seed=4, share=0.5)
    mixed.run(30)
    mixed.run(300, record=True)

    (verdict,) = decide(
        switchback(engine, pairs=20, seconds=60, burn_in=0.25), [], None, "closed_loop"
    )

    (found,) = verdict.speedups
    assert found.value == pytest.approx(truth, abs=0.02)
    assert found.low < truth < found.high
    assert verdict.action == "disable"
    assert request_contrast(mixed.finished) == pytest.approx(1.64, abs=0.03)


def test_clusters_cover_where_rounds_do_not():
    random = np.random.default_rng(1)
    mean_rate, covered, naive = 3.5 / 5, 0, 0
    whole = _requests(random, 20_000)
    theta = whole[0].sum() / whole[1].sum()
    for _ in range(600):
        tokens, times, rounds = _requests(random, 60)
        found = ratio_of_sums(tokens, times)
        low, high = found.interval()
        covered += low < theta < high
        # As if each round were drawn by itself: its variance over the number of rounds.
        spread = mean_rate * (1 - mean_rate) * 4
        se = math.sqrt(spread / rounds.sum()) * rounds.sum() / times.sum()
        naive += abs(found.value - theta) < 1.96 * se

    assert 0.92 <= covered / 600 <= 0.97
    assert naive / 600 < 0.6


def _requests(random, count):
    """Per request: tokens, time, rounds (k = 4, rates from a beta distribution)."""
    rate = random.beta(3.5, 1.5, count)
    rounds = random.geometric(1 / 40, count)
    slow = np.exp(random.normal(0, 0.10, count))
    tokens, times = np.zeros(count), np.zeros(count)
    for i in range(count):
        kept = np.cumprod(random.random((rounds[i], 4)) < rate[i], axis=1).sum()
        tokens[i] = rounds[i] + kept
        times[i] = (slow[i] * np.exp(random.normal(0, 0.05, rounds[i]))).sum()
    return tokens, times, rounds


@pytest.mark.parametrize("pairs", [5, 20])
def test_pairs_cover_at_any_number(pairs):
    random = np.random.default_rng(pairs)
    covered = 0
    for _ in range(1500):
        shared = np.exp(random.normal(0, 0.3, pairs))
        sizes = random.uniform(0.5, 2.0, pairs)
        y1 = sizes * shared * np.exp(random.normal(0, 0.04, pairs))
        y0 = sizes * shared * np.exp(random.normal(0, 0.04, pairs)) * 1.2
        low, high = paired_log_ratio(sizes, y1, sizes, y0).interval()
        covered += low < math.log(1.2) < high

    assert 0.92 <= covered / 1500 <= 0.97


def test_looking_after_every_pair_is_wrong_a_third_of_the_time_unless_the_interval_knows():
    random = np.random.default_rng(2)
    replications, horizon = 200, 280
    fixed_wrong = sequence_wrong = 0
    one = np.ones(horizon)
    for _ in range(replications):
        x = np.exp(random.standard_t(4, horizon) * 0.03)
        fixed = sequence = False
        for looked in range(20, horizon, 3):
            contrast = paired_log_ratio(x[:looked], one[:looked], one[:looked], one[:looked])
            # Truth: log E exp(T) of a truncated sample is not 0, so centre on the whole law.
            shift = _null_shift()
            fixed |= abs(contrast.delta - shift) > stats.t.isf(0.025, looked - 1) * contrast.se
            limits = sequential.interval(contrast)
            sequence |= limits is not None and not limits[0] <= shift <= limits[1]
        fixed_wrong += fixed
        sequence_wrong += sequence

    assert fixed_wrong / replications > 0.2
    assert sequence_wrong / replications <= 0.05


def test_a_window_that_slides_is_wrong_too_often_and_an_epoch_that_grows_is_not():
    random = np.random.default_rng(3)
    replications, days, a_day = 150, 50, 6
    sliding = growing = 0
    for _ in range(replications):
        x = np.exp(random.normal(0, 0.03, days * a_day) - 0.03**2 / 2)
        one = np.ones(len(x))
        slid = grown = False
        for day in range(7, days + 1):
            until = day * a_day
            for begin in (until - 7 * a_day, 0):
                rows_ = x[begin:until], one[begin:until]
                low, high = sequential.interval(paired_log_ratio(*rows_, rows_[1], rows_[1]))
                wrong = not low <= 0.0 <= high
                slid, grown = slid or (wrong and begin > 0), grown or (wrong and begin == 0)
        sliding += slid
        growing += grown

    assert growing / replications <= 0.05
    assert sliding > growing


def _null_shift():
    """log E exp(0.03 T_4), T cut at 30: the mean of what the test draws."""
    global _SHIFT
    if _SHIFT is None:
        grid = np.linspace(-30, 30, 200_001)
        density = stats.t.pdf(grid, 4)
        _SHIFT = math.log(np.average(np.exp(0.03 * grid), weights=density))
    return _SHIFT


_SHIFT = None

COST = {0: 1.0, 2: 1.3, 4: 1.6}
TIE = Kind(tokens={0: 1.0, 2: 1.3, 4: 1.6}, cost_ms=COST)
GRID = {
    "gains most at four": (Kind({0: 1.0, 2: 2.2, 4: 3.6}, COST), "set_k", 4),
    "gains most at two": (Kind({0: 1.0, 2: 1.9, 4: 2.0}, COST), "set_k", 2),
    "only four pays": (Kind({0: 1.0, 2: 1.2, 4: 2.2}, COST), "set_k", 4),
    "loses": (Kind({0: 1.0, 2: 1.15, 4: 1.2}, COST), "disable", 0),
}


@pytest.mark.parametrize("name", GRID)
def test_the_right_action_in_nearly_every_run(name):
    kind, action, k = GRID[name]

    found = [decide(*rows({"x": kind}, seed=seed, noise=0.04))[0] for seed in range(60)]

    right = sum((v.action, v.k) == (action, k) for v in found)
    assert right >= 0.95 * len(found)


def test_four_tied_segments_together_are_rarely_given_a_confident_verdict():
    wrong = 0
    for seed in range(100):
        kinds = dict.fromkeys("abcd", TIE)
        verdicts = decide(*rows(kinds, seed=seed, noise=0.04))
        wrong += any(v.action in ("keep", "set_k", "disable") for v in verdicts)

    assert wrong / 100 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 100)


def test_often_looked_at_intervals_wait_for_their_first_look():
    early = decide(*rows({"x": GRID["loses"][0]}, pairs=15), Rules(looked_at_often=True))
    later = decide(*rows({"x": GRID["loses"][0]}, pairs=40), Rules(looked_at_often=True))

    # Every pair loses: the order of the arms alone says so, before an interval may be shown.
    assert (early[0].action, early[0].confidence) == ("disable", "low")
    assert early[0].speedups[0].low is None
    assert early[0].speedups[0].p < 0.01
    assert later[0].action == "disable"


def test_a_gate_chosen_from_noise_does_not_flatter_itself():
    gates = []
    for seed in range(80):
        kinds = dict.fromkeys("abcd", TIE)
        (story,) = compare_switches(paired(*rows(kinds, seed=seed, pairs=6, noise=0.08)))
        gates.append(math.log(story.gate.value))

    assert np.mean(gates) < 2 * np.std(gates) / math.sqrt(len(gates))
