"""The check for arms that were sent unequal numbers of requests never jumps with the queue."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from block_rows import Kind, rows

from specscope.evaluate.experiment.checks import SRM_LEVEL, sample_ratio_p
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.verdict.flags import find_flags

SHARES = [step / 200 for step in range(61)]
GROWTH = {"waiting_first": 2, "waiting_last": 3, "admitted_kinds": ("sql",)}


def pairs_at(share, more, growth_known=False):
    """Twenty pairs in which k4 was sent so many times the requests of k0, +-5 % at random.

    share: requests that wait for each that runs. growth_known: of the queue, over each block.
    """
    times, parts = rows({"sql": Kind({0: 1.0, 4: 3.0}, {0: 10.0, 4: 15.0})})
    noise = np.random.default_rng(7).normal(0.0, 0.05, (2, len(times)))
    meant = np.array([more if block.k else 1.0 for block in times]) * np.exp(noise)
    after_burn_in, burn_in = np.rint(meant * [[75], [25]]).astype(int).tolist()
    queued = [
        replace(block, requests=sum(sent), waiting=share * block.request_rounds)
        for block, *sent in zip(times, after_burn_in, burn_in, strict=True)
    ]
    if growth_known:
        queued = [
            replace(block, admitted_counts=(count,), **GROWTH)
            for block, count in zip(queued, after_burn_in, strict=True)
        ]
    return pairs_of(queued, parts, "switchback")


@pytest.mark.parametrize("more", [0.8, 1.1, 1.25])
@pytest.mark.parametrize("often", [False, True])
def test_where_the_growth_is_unknown_a_longer_queue_makes_it_less_sure(more, often):
    logs = [math.log(sample_ratio_p(pairs_at(share, more), "k4", "k0", often)) for share in SHARES]

    whole = logs[-1] - logs[0]
    steps = [after - before for before, after in itertools.pairwise(logs)]
    assert logs[-1] == 0.0
    assert logs[0] == logs[SHARES.index(0.05)] < 0.0
    assert all(0.0 <= step <= 0.005 / 0.15 * whole + 1e-9 for step in steps)


@pytest.mark.parametrize("more", [0.8, 1.03, 1.06, 1.25])
@pytest.mark.parametrize("growth_known", [False, True])
def test_a_queue_of_0_099_and_one_of_0_101_are_flagged_alike(more, growth_known):
    below, above = (
        find_flags(pairs_at(share, more, growth_known), ["k4"], "switchback", 0.95)
        for share in (0.099, 0.101)
    )

    assert below == above


@pytest.mark.parametrize(("more", "mismatch"), [(1.0, False), (1.05, True), (1.06, True)])
def test_with_the_growth_of_the_queue_a_mismatch_is_found_at_every_length_of_it(more, mismatch):
    p_values = [sample_ratio_p(pairs_at(share, more, True), "k4", "k0") for share in SHARES]

    steps = [abs(math.log(after / before)) for before, after in itertools.pairwise(p_values)]
    assert max(steps) < 0.1
    assert p_values[0] != p_values[-1]  # requests of the burn-in count in the first alone
    assert {p < SRM_LEVEL for p in p_values} == {mismatch}


def test_requests_that_still_wait_are_no_mismatch():
    def admitted_later(block):
        kept_back = 0 if block.k else 20
        return replace(
            block,
            admitted_counts=(block.admitted_counts[0] - kept_back,),
            waiting_first=0,
            waiting_last=kept_back,
        )

    pairs = [
        replace(pair, blocks={arm: admitted_later(one) for arm, one in pair.blocks.items()})
        for pair in pairs_at(0.02, 1.0, True)
    ]

    assert sample_ratio_p(pairs, "k4", "k0") > 0.01
