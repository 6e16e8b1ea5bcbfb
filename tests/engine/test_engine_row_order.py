"""Rows that draft stand before those that do not, and attention reads the latter apart."""

from dataclasses import replace

import pytest
import torch
from engine.head_plants import HeadAsTarget, random_head
from engine.tiny_models import TINY, Record, prompts, random_gate, run, tiny_model

import specscope.engine.decode.scheduler as scheduler
import specscope.engine.model.layout as layout
from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.eagle import EagleDrafter
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.model.kv_cache import KVCache
from specscope.engine.model.layout import lay_out, pack

LENGTHS = (3, 14, 5, 30, 2, 9, 21, 7)
PARAMS = SamplingParams(temperature=1.0, max_new_tokens=40)


def half(sequences, _):
    """4 for every other request."""
    return [4 * (int(one.request.id) % 2) for one in sequences]


def in_turns(sequences, _):
    """4 for every request now and then, as its own text says."""
    return [4 * ((int(one.request.id) + one.context // 7) % 2) for one in sequences]


def by_order(record):
    """Of each round, the draft lengths in the order of the rows."""
    return [tuple(report.k) for report in record.rounds]


@pytest.mark.parametrize(
    ("widths", "narrow", "padding"),
    [
        ((5, 5, 1, 1, 1, 1), 4, 0),
        ((5, 2, 1, 1, 1, 1, 1), 5, 3),
        ((2, 0, 5, 1, 1, 1, 1), 4, 8),
        ((5, 5, 1, 1, 1), 0, 12),  # too few to pay
        ((2, *[1] * 16), 16, 0),
        ((2, *[1] * 15), 0, 15),
        ((5, 1, 1, 1, 1, 5), 0, 16),
        ((1,) * 30, 0, 0),
    ],
)
def test_last_rows_of_one_token_are_a_rectangle_of_their_own(widths, narrow, padding):
    packing = pack(widths, "cpu")

    assert packing.shape.narrow == narrow
    assert packing.padding == padding
    assert sum(part.rows * part.width for part in packing.parts) - sum(widths) == padding
    assert [sum(part.tokens for part in packing.parts), packing.parts[-1].width] == [
        sum(widths), 1 if narrow else max(widths)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "widths", [(5, 5, 1, 1, 1, 1), (5, 2, 1, 1, 1, 1, 1), (3, 0, 5, 1, 1, 1, 1)]
)
def test_reading_rows_apart_changes_no_logit(monkeypatch, widths):
    model = tiny_model(3)
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(TINY.vocab, (sum(widths),), generator=random)

    def logits():
        pack.cache_clear()
        cache = KVCache(TINY, len(widths), 64, "cpu", torch.float64)
        cache.entries.normal_(generator=torch.Generator().manual_seed(2))
        packing = pack(widths, "cpu")
        # What the last rows, whose texts are short, do not see need not be read.
        positions = 40 - 5 * packing.token_rows + packing.offsets
        extents = (64, 31) if len(packing.parts) == 2 else (64,)
        plan = lay_out(packing, positions, extents, TINY, torch.float64)
        return model.logits(model(tokens, cache, plan)), len(packing.parts)

    apart, two = logits()
    monkeypatch.setattr(layout, "LEAST_SPARED", 10**9)
    together, one = logits()
    pack.cache_clear()

    assert (one, two) == (1, 2)
    torch.testing.assert_close(apart, together, rtol=0, atol=1e-12)


def test_rows_that_draft_come_first_after_a_few_rounds(target):
    longer = replace(PARAMS, max_new_tokens=80)

    record = run(target, ModelDrafter(target), prompts(LENGTHS), longer, gate=half, slots=8)

    orders = by_order(record)
    assert orders[0] == (0, 4) * 4
    assert orders[scheduler.SETTLED_ROUNDS - 1] == (0, 4) * 4
    assert orders[scheduler.SETTLED_ROUNDS + 1] == (4,) * 4 + (0,) * 4
    padded = [report.padded_tokens for report in record.rounds]
    assert padded[0] > padded[scheduler.SETTLED_ROUNDS + 1] == 0


def test_a_gate_that_changes_its_mind_every_few_rounds_moves_nothing(target, monkeypatch):
    moves = []
    monkeypatch.setattr(KVCache, "move", lambda *given: moves.append(given))
    rounds = 0

    def fickle(sequences, _):
        nonlocal rounds
        rounds += 1
        return [4 * ((place + rounds // 6) % 2) for place in range(len(sequences))]

    engine = Engine(target, ModelDrafter(target), k_max=4, slots=8, capacity=120, gate=fickle)
    for index, text in enumerate(prompts(LENGTHS)):
        engine.submit(str(index), text, replace(PARAMS, max_new_tokens=80))
    for _ in range(14):
        engine.step()

    assert moves == []


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("settled", [0, 1, 3])
@pytest.mark.parametrize("gate", [half, random_gate(4), fixed_gate(2)], ids=["half", "any", "all"])
def test_rows_that_change_places_keep_their_text_and_their_drafts(
    target, monkeypatch, settled, gate, depth
):
    """A target that drafts for itself accepts everything only if its cache moves with its row."""
    plain = run(target, ModelDrafter(target), prompts(LENGTHS), PARAMS, gate=0, slots=8)
    monkeypatch.setattr(scheduler, "SETTLED_ROUNDS", settled)

    moved = run(
        target, ModelDrafter(target), prompts(LENGTHS), PARAMS, gate=gate, slots=8, depth=depth
    )

    assert moved.texts == plain.texts
    assert moved.acceptance == 1.0


def test_every_request_gets_the_draft_length_that_the_gate_gave_it(target):
    longer = replace(PARAMS, max_new_tokens=80)

    record = run(target, ModelDrafter(target), prompts(LENGTHS), longer, gate=half, slots=8)

    lengths = {id: {k for k, _ in rounds} for id, rounds in by_request(record).items()}
    assert lengths == {id: {4 * (int(id) % 2)} for id in lengths}


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("gate", [half, random_gate(4)], ids=["half", "any"])
def test_hidden_states_of_a_draft_head_move_with_their_rows(monkeypatch, gate, depth):
    head = random_head()
    target = HeadAsTarget(head)
    monkeypatch.setattr(scheduler, "SETTLED_ROUNDS", 0)

    record = run(
        target, EagleDrafter(head, target), prompts(LENGTHS), PARAMS,
        gate=gate, slots=8, depth=depth,
    )  # fmt: skip

    assert record.acceptance == 1.0


def test_tables_of_prompt_lookup_move_with_their_rows(target, monkeypatch):
    repeating = [(text * 8)[: 8 + index] for index, text in enumerate(prompts([3] * 8))]
    greedy = SamplingParams(max_new_tokens=60)

    def lookup(settled):
        monkeypatch.setattr(scheduler, "SETTLED_ROUNDS", settled)
        return by_request(run(target, NgramDrafter(), repeating, greedy, gate=in_turns, slots=8))

    apart, moved = lookup(10**9), lookup(0)
    assert sum(k for rounds in apart.values() for k, _ in rounds) > 100
    assert moved == apart


def by_request(record: Record):
    """Draft lengths and accepted tokens of each request, round by round."""
    rounds = {}
    for report in record.rounds:
        for id, k, accepted in zip(report.requests, report.k, report.accepted, strict=True):
            rounds.setdefault(id, []).append((k, accepted))
    return rounds
