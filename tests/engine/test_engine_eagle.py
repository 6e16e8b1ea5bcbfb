"""The draft head's drafter: exact where its head is exact, and never of any effect on a text."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from engine.head_plants import HEAD, HeadAsTarget, near_head, plain_draft, random_head
from engine.plain_decoding import decode_plainly
from engine.test_engine_acceptance import MODES, SETTINGS, kinds
from engine.tiny_models import TINY, prompts, random_gate, run, tiny_model

from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.eagle import EagleDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.errors import BadSetting, IncompatiblePair

LENGTHS = (1, 2, 5, 14, 30, 7)
SHAPES = [(0, None), (1, None), (2, None), (1, True)]
"""Depth of the pipeline, and whether rounds are replayed."""


@pytest.fixture(scope="module")
def planted():
    return HeadAsTarget(random_head())


@pytest.fixture(scope="module")
def head():
    return random_head(seed=8)


def drafter_of(planted):
    return EagleDrafter(planted.inner, planted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("depth", "graphs"), SHAPES[1::2])
def test_an_exact_head_is_accepted_whole(planted, settings, mode, depth, graphs):
    record = run(
        planted, drafter_of(planted), prompts(LENGTHS),
        lambda i: replace(SETTINGS[settings], mode=mode, seed=i),
        gate=random_gate(4), depth=depth, graphs=graphs,
    )  # fmt: skip

    assert record.acceptance == 1.0


@pytest.mark.parametrize(("depth", "graphs"), SHAPES)
@pytest.mark.parametrize("budget", [None, 130])
def test_an_exact_head_is_accepted_whole_in_mixed_rows_that_move_and_are_preempted(
    planted, depth, graphs, budget
):
    texts = prompts(LENGTHS + LENGTHS[:3])

    record = run(
        planted, drafter_of(planted), texts, lambda i: replace(kinds(i), max_new_tokens=30 + i),
        gate=random_gate(4), depth=depth, graphs=graphs, slots=5, capacity=90,
        cache_tokens=budget, prefill_tokens=11,
    )  # fmt: skip

    assert record.acceptance == 1.0
    assert len(record.texts) == len(texts)
    assert any(report.preempted for report in record.rounds) == (budget is not None)


@pytest.mark.parametrize("length", [255, 256, 257, 258, 600])
def test_an_exact_head_reads_a_long_prompt_in_several_passes(length):
    planted = HeadAsTarget(random_head(replace(HEAD, max_context=1024)))

    record = run(
        planted, drafter_of(planted), prompts((length, 3, 300)),
        SamplingParams(max_new_tokens=8), gate=3, capacity=700, prefill_tokens=900,
    )  # fmt: skip

    assert record.acceptance == 1.0


class Watched(EagleDrafter):
    """Keeps what was proposed for which text."""

    def open(self, rows, capacity, k_max, device):
        super().open(rows, capacity, k_max, device)
        self.seen = []

    def propose(self, batch, ks):
        proposal = super().propose(batch, ks)
        for row, k in enumerate(ks):
            length = int(batch.state.lengths[row])
            tokens = batch.state.tokens[row, : length + k].tolist()
            outputs = self.features[row, length : length + k].clone()
            self.seen.append((tokens[:length], k, tokens[length:], outputs))
        return proposal


@pytest.mark.parametrize(("depth", "graphs"), SHAPES)
def test_a_head_proposes_what_it_computes_from_the_text_alone(target, head, depth, graphs):
    drafter = Watched(head, target)

    run(
        target, drafter, prompts(LENGTHS), SamplingParams(max_new_tokens=16),
        gate=random_gate(4), depth=depth, graphs=graphs, slots=3,
    )  # fmt: skip

    drafts = Counter(k for _, k, *_ in drafter.seen)
    assert min(drafts[k] for k in range(5)) > 3
    check(drafter)


def check(drafter):
    """Everything that was proposed follows from its text, to the last digits of the outputs."""
    for text, k, proposed, outputs in drafter.seen:
        tokens, expected = plain_draft(drafter.head, drafter.target, text, k)
        assert proposed == tokens
        torch.testing.assert_close(outputs, expected)


@pytest.mark.parametrize(("depth", "graphs"), SHAPES)
def test_what_was_accepted_whole_is_read_again_with_true_hidden_states(planted, depth, graphs):
    drafter = Watched(near_head(planted.inner, 0.01), planted)

    record = run(
        planted, drafter, prompts(LENGTHS[:3]), SamplingParams(max_new_tokens=20), gate=4,
        depth=depth, graphs=graphs, slots=3,
    )  # fmt: skip

    assert 0.5 < record.acceptance < 1
    assert sum(accepted == 4 for report in record.rounds for accepted in report.accepted) > 3
    check(drafter)


@pytest.mark.parametrize("closed", [1, 2, 6, 7, 20])
@pytest.mark.parametrize("depth", [0, 1])
def test_after_rounds_without_a_draft_the_head_proposes_as_if_there_had_been_none(
    target, head, closed, depth
):
    drafter, rounds = Watched(head, target), 0

    def gate(sequences, waiting):
        nonlocal rounds
        rounds += 1
        return [4 if rounds % (closed + 3) < 3 else 0] * len(sequences)

    record = run(
        target, drafter, prompts((9, 40)), SamplingParams(max_new_tokens=60), gate=gate, depth=depth
    )

    assert sum(k > 0 for _, k, *_ in drafter.seen) > 5
    check(drafter)
    drafting = [any(report.k) for report in record.rounds]
    for before, after, report in zip(drafting, drafting[1:], record.rounds[1:], strict=False):
        assert (report.catchup_us > 0) == (after and not before)


@pytest.mark.parametrize(("depth", "graphs"), SHAPES)
@pytest.mark.parametrize("exact", [True, False])
def test_a_head_changes_no_text(planted, target, head, exact, depth, graphs):
    model, own = (planted, planted.inner) if exact else (target, head)
    texts = prompts(LENGTHS)

    record = run(
        model, EagleDrafter(own, model), texts, kinds, gate=random_gate(4), depth=depth,
        graphs=graphs, slots=4,
    )  # fmt: skip

    for index, text in enumerate(texts):
        if kinds(index).mode == "coupled" or kinds(index).greedy:
            expected, _ = decode_plainly(model, text, kinds(index), 120)
            assert record.texts[str(index)] == expected


def test_a_heads_rounds_report_what_was_done(target, head):
    record = run(
        target, EagleDrafter(head, target, delay_us=500), prompts((6, 12)),
        SamplingParams(max_new_tokens=20), gate=3,
    )  # fmt: skip

    first, *rest = record.rounds
    assert first.catchup_us > 0
    assert not any(report.catchup_us for report in rest)
    assert all(report.draft_us > 1500 for report in record.rounds)
    assert {k for report in record.rounds for k in report.k} == {3}


def test_a_head_of_another_target_is_refused(target, head):
    other = tiny_model(5)
    with pytest.raises(IncompatiblePair, match="not the one"):
        Engine(
            other, EagleDrafter(head, target), k_max=2, slots=1, capacity=20,
            gate=lambda sequences, waiting: [0],
        )  # fmt: skip
    with pytest.raises(IncompatiblePair, match=r"32.*48"):
        EagleDrafter(random_head(replace(HEAD, hidden=48)), target)
    with pytest.raises(IncompatiblePair, match=r"61.*60"):
        EagleDrafter(random_head(replace(HEAD, vocab=60)), target)


def test_a_head_with_too_few_positions_is_refused(target):
    short = random_head(replace(HEAD, max_context=30))

    with pytest.raises(BadSetting, match="30"):
        run(target, EagleDrafter(short, target), prompts((3,)), SamplingParams(), capacity=40)


def test_a_head_of_several_layers_is_as_exact(target):
    planted = HeadAsTarget(random_head(TINY))

    record = run(
        planted, drafter_of(planted), prompts(LENGTHS), kinds, gate=random_gate(4), depth=1
    )

    assert record.acceptance == 1.0
