"""A row that drafts nothing costs less: ratios within one run, in this thread's CPU time."""

import time

import numpy as np
import pytest

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.bundled import bundled_prompts, load_bundled
from specscope.engine.draft import ModelDrafter
from specscope.engine.engine import Engine

BATCH, ROUNDS = 32, 15


@pytest.fixture(scope="module")
def pair():
    return load_bundled()


def busy_engine(pair, gate, batch=BATCH):
    texts = [pair.encode(prompt.text) for prompt in bundled_prompts()[:batch]]
    engine = Engine(
        pair.target, ModelDrafter(pair.draft), k_max=4, slots=batch, capacity=400, gate=gate
    )
    for index, text in enumerate(texts):
        params = SamplingParams(temperature=1.0, seed=index, max_new_tokens=300)
        engine.submit(str(index), text, params)
    for _ in range(2):
        engine.step()
    return engine


def cost_ratio(one, other):
    """CPU time of the quickest round of `one` in terms of `other`'s, rounds taken in turn.

    Others on the machine can only make a round slower.
    """
    took = np.zeros((ROUNDS, 2))
    for index in range(ROUNDS):
        for side, engine in enumerate((one, other)):
            began = time.thread_time()
            engine.step()
            took[index, side] = time.thread_time() - began
    best = took.min(0)
    return float(best[0] / best[1])


def test_half_the_rows_at_k_0_cost_at_most_four_fifths_of_all_at_4(pair):
    half = busy_engine(pair, lambda sequences, _: [4 * (i % 2) for i in range(len(sequences))])
    full = busy_engine(pair, fixed_gate(4))

    assert cost_ratio(half, full) <= 0.8


def test_a_closed_gate_costs_what_an_engine_without_drafts_costs(pair):
    closed = busy_engine(pair, fixed_gate(0))
    full = busy_engine(pair, fixed_gate(4))

    assert cost_ratio(closed, full) < 0.6


def test_throughput_grows_with_the_batch(pair):
    took = {}
    for batch in (1, 8, 32):
        engine = busy_engine(pair, fixed_gate(2), batch)
        best = np.inf
        for _ in range(8):
            began = time.thread_time()
            engine.step()
            best = min(best, time.thread_time() - began)
        took[batch] = best

    assert took[8] / 8 < 0.6 * took[1]
    assert took[32] / 32 < 0.9 * took[8] / 8
