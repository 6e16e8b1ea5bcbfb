"""Cost follows the gate: a row puts k + 1 tokens through the target, whatever its neighbours do.

Counted, not timed: tokens at the models' inputs and floating-point operations of the rounds. What
they take in time is measured by bench/engine_cost.py.
"""

from copy import copy
from typing import NamedTuple

import pytest
from engine.tiny_models import Record, prompts
from torch.utils.flop_counter import FlopCounterMode

from specscope.engine.api import RoundReport, SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine

BATCH, ROUNDS, K = 16, 4, 4


class Meter:
    """Counts the passes through a model and the tokens in them."""

    def __init__(self, model, monkeypatch):
        self.passes, self.tokens, self._forward = 0, 0, model.forward
        monkeypatch.setattr(model, "forward", self)

    def __call__(self, fed, *more, **named):
        self.passes += 1
        self.tokens += fed.numel()
        return self._forward(fed, *more, **named)


class Counted(NamedTuple):
    """Of a few rounds: what went through each model, floating-point operations, reports."""

    target: Meter
    draft: Meter
    operations: int
    rounds: list[RoundReport]


@pytest.fixture
def count(target, draft, monkeypatch):
    """What a few rounds under a gate put through target and draft, and their reports."""
    meters = [Meter(model, monkeypatch) for model in (target, draft)]

    def run(gate, batch=BATCH):
        record = Record()
        engine = Engine(
            target, ModelDrafter(draft), k_max=K, slots=batch, capacity=100, gate=gate,
            observers=[record],
        )  # fmt: skip
        for index, text in enumerate(prompts([12] * batch)):
            engine.submit(str(index), text, SamplingParams(max_new_tokens=60))
        engine.step()  # reads the prompts
        for meter in meters:
            meter.passes = meter.tokens = 0
        with FlopCounterMode(display=False) as operations:
            for _ in range(ROUNDS):
                engine.step()
        return Counted(*map(copy, meters), operations.get_total_flops(), record.rounds[1:])

    return run


def every_other(sequences, _):
    return [K * (place % 2) for place in range(len(sequences))]


def test_rows_that_draft_nothing_put_one_token_through_the_target_beside_rows_that_draft(count):
    counted = count(every_other)

    assert {k for report in counted.rounds for k in report.k} == {0, K}
    assert counted.target.tokens == sum(sum(r.k) + len(r.k) for r in counted.rounds)
    assert counted.target.tokens == ROUNDS * (BATCH // 2) * (1 + K + 1)


def test_rows_that_draft_nothing_put_no_token_through_the_draft(count):
    counted = count(every_other)

    drafting = ROUNDS * BATCH // 2
    assert sum(k > 0 for report in counted.rounds for k in report.k) == drafting
    # Two tokens of the text, then each proposal but the last.
    assert counted.draft.tokens == drafting * (2 + K - 1)


def test_half_the_rows_at_k_0_compute_at_most_two_thirds_of_all_at_4(count):
    half, full = count(every_other), count(fixed_gate(K))

    # Were rows padded to the widest, the ratio would be 1; by tokens it is 3 in 5.
    assert half.operations <= full.operations * 2 / 3


def test_a_closed_gate_computes_one_token_a_row_and_nothing_in_the_draft(count):
    closed, full = count(fixed_gate(0)), count(fixed_gate(K))

    assert (closed.target.tokens, closed.draft.passes) == (ROUNDS * BATCH, 0)
    assert closed.operations < full.operations / 3


@pytest.mark.parametrize("batch", [1, BATCH])
def test_a_round_reads_the_weights_once_however_many_rows_share_it(count, batch):
    counted = count(fixed_gate(2), batch)

    assert counted.target.passes == ROUNDS
    assert counted.draft.passes == 2 * ROUNDS
