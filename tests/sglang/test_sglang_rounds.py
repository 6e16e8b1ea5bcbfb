"""The SGLang adapter's rounds against the stand-in engine's own tally of each."""

import math
import random
from itertools import pairwise

import pytest

from specscope_hook.columns import End, TimingSource

ALGORITHMS = ["NONE", "EAGLE", "STANDALONE", "NGRAM"]


def tally(reqs):
    return sorted(req.truth for req in reqs if req.truth)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rounds_are_what_the_engine_did(engine, algorithm, overlap):
    rng = random.Random(algorithm + str(overlap))
    reqs = [
        engine.request(f"r{n}", prompt=rng.randint(1, 50), max_new_tokens=rng.randint(1, 30))
        for n in range(12)
    ]
    late = {turn: lambda s, r=req: s._add_request_to_queue(r) for turn, req in
            zip((3, 4, 9, 40, 41), reqs[7:], strict=True)}  # fmt: skip

    ring = engine.serve(
        *reqs[:7],
        algorithm=algorithm,
        overlap=overlap,
        accepts=lambda req: rng.randint(0, 3),
        tokens=lambda req, place: 2 if rng.random() < 0.05 else 7,
        events=late,
    )

    assert (ring.fault, ring.ended) == ("", True)
    assert sorted(ring.truth().values()) == tally(reqs)
    assert {request.reason for request in ring.ends} <= {End.EOS, End.LENGTH}
    assert len(ring.ends) == 12
    for req in reqs:
        assert len(req.output_ids_through_stop) == 1 + sum(row[2] for row in req.truth)


def test_plain_decoding_is_rounds_of_k_0(engine):
    ring = engine.serve(engine.request("a", max_new_tokens=4), algorithm="NONE")

    assert [(r.k, r.accepted, r.emitted) for r in ring.rounds] == [([0], [0], [1])] * 3
    assert [r.ends for r in ring.rounds] == [[End.NONE], [End.NONE], [End.LENGTH]]


def test_adaptive_speculation_that_switches_drafting_off_is_rounds_of_k_0(engine):
    def off(scheduler):
        scheduler.plan.steps, scheduler.plan.width = 0, 1

    ring = engine.serve(
        engine.request("a", max_new_tokens=12),
        events={4: off},
        costs_us={"draft": 50, "draft_extend": 20},
        overlap=True,
    )

    assert [r.k for r in ring.rounds[:3]] == [[3], [3], [0]]
    assert ring.rounds[0].draft_us > 70
    assert ring.rounds[2].draft_us == 20  # the drafter is kept up to date, and that is paid


def test_of_a_tree_k_is_the_depth_and_the_rest_is_padding(engine):
    ring = engine.serve(
        engine.request("a"), engine.request("b"), topk=4, steps=5, width=9, accepts=lambda req: 5
    )

    assert ring.boot["k_max"] == 5
    assert ring.rounds[0].k == [5, 5]
    assert ring.rounds[0].accepted == [5, 5]
    assert ring.rounds[0].padded_tokens == 2 * (8 - 5)


def test_a_sequence_that_ended_while_its_next_batch_ran_is_padding_there(engine):
    short, long = engine.request("s", max_new_tokens=4), engine.request("l", max_new_tokens=10)

    ring = engine.serve(short, long, overlap=True)

    assert [len(r.requests) for r in ring.rounds] == [2, 1, 1]
    assert [r.padded_tokens for r in ring.rounds] == [0, 4, 0]
    assert sum(sum(r.emitted) for r in ring.rounds) == 3 + 9


def test_a_prompts_time_is_no_round_but_the_prefill_time_of_the_next(engine):
    late = engine.request("b", prompt=30, max_new_tokens=8)
    costs = {"prompt": 500, "forward": 100, "process": 10, "draft": 40, "prepare": 5}

    ring = engine.serve(
        engine.request("a", max_new_tokens=12),
        events={3: lambda s: s._add_request_to_queue(late)},
        costs_us=costs | {"sample": 7, "draft_extend": 9},
    )

    first, second, *more = ring.rounds
    assert all(r.requests for r in ring.rounds)
    assert (first.prefill_tokens, first.prefill_us) == (10, 500)
    assert (second.prefill_tokens, second.prefill_us) == (30, 500)
    assert {(r.prefill_tokens, r.prefill_us) for r in more} == {(0, 0)}
    for each in ring.rounds:
        # The draft model's own forward pass is drafting; the target's plan belongs to verifying.
        parts = (each.draft_us, each.verify_us, each.sample_us)
        assert parts == (100 + 40 + 9, 5 + 100, 7)
        assert each.timing_source == TimingSource.HOST
    assert [r.idle_us for r in (first, second)] == [20, 20]
    assert second.wall_us == 510 + 149 + 105 + 7 + 10
    assert more[0].wall_us == second.wall_us - 510


def test_lookup_is_timed_as_drafting_and_acceptance_to_its_end(engine):
    costs = {"draft": 40, "forward": 100, "sample": 7, "process": 10}

    ring = engine.serve(engine.request("a"), algorithm="NGRAM", costs_us=costs)

    times = {(r.draft_us, r.verify_us, r.sample_us, r.idle_us) for r in ring.rounds[1:]}
    assert times == {(40, 100, 7, 10)}


def test_a_wall_begins_anew_after_the_engine_had_nothing_to_do(engine):
    def sleep(scheduler):
        engine.hands.ns += 5_000_000_000

    def comes_back(scheduler):
        scheduler._add_request_to_queue(engine.request("b", max_new_tokens=8))

    events = {30: sleep, 31: comes_back}
    ring = engine.serve(engine.request("a", max_new_tokens=8), events=events)

    assert max(r.wall_us for r in ring.rounds) < 1000
    starts = [r.started_at for r in ring.rounds]
    assert max(b - a for a, b in pairwise(starts)) > 4_900_000_000


def test_in_a_mixed_batch_sequences_decode_without_speculation(engine):
    first, late = engine.request("a", max_new_tokens=12), engine.request("b", max_new_tokens=2)

    ring = engine.serve(first, events={3: lambda s: s._add_request_to_queue(late)}, mixed=True)

    mixed = ring.rounds[1]
    assert (mixed.k, mixed.emitted, mixed.prefill_tokens) == ([0], [1], 10)
    assert math.isnan(mixed.prefill_us)
    assert sorted(ring.truth().values()) == tally([first, late])


@pytest.mark.parametrize("overlap", [False, True])
def test_one_put_back_into_the_queue_is_counted_and_comes_to_its_end(engine, overlap):
    req, other = engine.request("a", max_new_tokens=20), engine.request("b", max_new_tokens=20)

    ring = engine.serve(req, other, overlap=overlap, events={4: lambda s: s.retract(req)})

    ends = {request.request: request for request in ring.ends}
    assert sorted(end.preemptions for end in ends.values()) == [0, 1]
    assert sum(r.preempted for r in ring.rounds) == 1
    assert sorted(ring.truth().values()) == tally([req, other])
    # Its second prompt gave out a token of its own.
    assert len(req.output_ids_through_stop) == 2 + sum(row[2] for row in req.truth)
