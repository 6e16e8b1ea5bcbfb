"""The rounds give the target's own text, whatever is drafted, gated or batched."""

import random
from dataclasses import replace

import pytest
from engine.tiny_models import prompts, random_gate, run, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.drafter import Proposal, host_proposal
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.engine import Engine

LENGTHS = (1, 2, 3, 5, 9, 14, 30, 7, 2)
GREEDY = SamplingParams(max_new_tokens=24)
MODES = {
    "greedy": lambda i: SamplingParams(max_new_tokens=20 + i),
    "coupled": lambda i: SamplingParams(temperature=1.0, seed=i, max_new_tokens=20 + i),
    "coupled, filtered": lambda i: SamplingParams(
        temperature=0.8, top_p=0.9, top_k=20, seed=i, max_new_tokens=20 + i
    ),
    "mixed": lambda i: SamplingParams(temperature=(i % 2) * 1.0, seed=i, max_new_tokens=20 + i),
}


class Worst(NgramDrafter):
    """Always proposes what the target likes least."""

    def __init__(self, target):
        super().__init__()
        self.target = target

    def propose(self, batch, ks):
        import torch

        worst = []
        for text, k in zip(batch.texts, ks, strict=True):
            own, text = [], list(text)
            for _ in range(k):
                own.append(int(self.target.score(torch.tensor([text]))[0, -1].argmin()))
                text.append(own[-1])
            worst.append(own)
        return host_proposal(worst, self.device)


def one_by_one(target, texts, params):
    return {
        str(i): run(target, ModelDrafter(target), [text], params(i), slots=1).texts["0"]
        for i, text in enumerate(texts)
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("k", "depth"), [(1, 0), (4, 0), (2, 1), ("random", 0), ("random", 2)])
def test_a_ragged_batch_emits_what_each_row_emits_alone(target, draft, mode, k, depth):
    texts = prompts(LENGTHS)
    alone = one_by_one(target, texts, MODES[mode])
    gate = random_gate(4) if k == "random" else k

    together = run(target, ModelDrafter(draft), texts, MODES[mode], gate=gate, depth=depth)

    assert together.texts == alone
    assert 0.05 < together.acceptance < 0.99


@pytest.mark.parametrize("mode", ["greedy", "coupled", "rejection"])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("k", [1, 2, 3, 5, "random"])
def test_a_target_that_drafts_for_itself_accepts_everything(target, k, mode, depth):
    params = SamplingParams(temperature=1.0, mode=mode, seed=5, max_new_tokens=40)
    gate = random_gate(5) if k == "random" else k

    record = run(
        target, ModelDrafter(target), prompts(LENGTHS), params, gate=gate, k_max=5, depth=depth
    )

    assert record.acceptance == 1.0


def test_forgetting_the_last_accepted_token_shows_in_acceptance_but_not_in_the_text(target):
    class Forgetful(ModelDrafter):
        window = 1

    sound = run(target, ModelDrafter(target), prompts(LENGTHS), GREEDY, gate=4)
    planted = run(target, Forgetful(target), prompts(LENGTHS), GREEDY, gate=4)

    assert planted.texts == sound.texts
    assert planted.acceptance < 0.9 < sound.acceptance == 1.0


@pytest.mark.parametrize("closed", [1, 2, 17])
def test_the_first_round_after_a_closed_gate_accepts_everything(target, closed):
    rounds = 0

    def gate(sequences, waiting):
        nonlocal rounds
        rounds += 1
        return [3 if rounds % (closed + 1) == 1 else 0] * len(sequences)

    record = run(target, ModelDrafter(target), prompts((4, 9, 1)), GREEDY, gate=gate)

    assert record.acceptance == 1.0
    assert any(report.catchup_us > 0 for report in record.rounds)


def test_a_row_that_was_never_drafted_for_pays_no_catch_up(target):
    record = run(target, ModelDrafter(target), prompts(LENGTHS), GREEDY, gate=0)

    assert all(report.catchup_us == report.draft_us == 0 for report in record.rounds)


def test_a_drafter_that_is_always_wrong_costs_rounds_and_changes_nothing(target):
    texts = prompts((3, 6))
    plain = run(target, ModelDrafter(target), texts, GREEDY)

    record = run(target, Worst(target), texts, GREEDY, gate=3)

    assert record.texts == plain.texts
    assert sum(map(sum, (r.accepted for r in record.rounds))) == 0
    assert all(set(r.emitted) == {1} for r in record.rounds)


@pytest.mark.parametrize("depth", [0, 1])
def test_every_round_emits_one_token_more_than_it_accepts_until_the_text_ends(target, draft, depth):
    record = run(target, ModelDrafter(draft), prompts(LENGTHS), GREEDY, gate=4, depth=depth)

    emitted = dict.fromkeys(record.ends, 0)
    for report in record.rounds:
        columns = (report.requests, report.accepted, report.emitted, report.ends, report.k)
        for id, accepted, count, end, k in zip(*columns, strict=True):
            emitted[id] += count
            assert accepted <= k
            assert count == accepted + 1 if end == "none" else 1 <= count <= accepted + 1
    assert emitted == {id: len(text) for id, text in record.texts.items()}


def test_a_dropped_bonus_token_is_seen_by_the_count(target, monkeypatch):
    import specscope.engine.decode.round as rounds

    sound = rounds.commit

    def dropping(verified, state, *rest):
        full = verified.accepted.clamp(max=verified.block.shape[1] - 2)
        return sound(replace(verified, accepted=full), state, *rest)

    monkeypatch.setattr(rounds, "commit", dropping)

    record = run(target, ModelDrafter(target), prompts((4,)), GREEDY, gate=2)

    assert record.acceptance < 1.0


@pytest.mark.parametrize("k", [1, 3, 5])
def test_declaring_any_emitted_token_the_end_cuts_the_text_there(target, draft, k):
    text = prompts((6,))
    plain = run(target, ModelDrafter(draft), text, GREEDY).texts["0"]

    for token in dict.fromkeys(plain):
        cut = plain[: plain.index(token) + 1]
        for drafter in (ModelDrafter(draft), ModelDrafter(target)):
            record = run(target, drafter, text, replace(GREEDY, eos=(token,)), gate=k, k_max=5)
            assert record.texts["0"] == cut
            assert record.ends["0"].reason == "eos"


@settings(max_examples=60)
@given(st.integers(0, 5), st.integers(1, 24), st.integers(0, 23))
def test_the_end_of_text_and_the_limit_fall_where_target_only_decoding_has_them(k, limit, place):
    target = tiny_model(0)
    text, plain = prompts((6,)), PLAIN
    eos = plain[place]
    cut = plain[: min(limit, plain.index(eos) + 1)]
    params = SamplingParams(max_new_tokens=limit, eos=(eos,))

    record = run(target, ModelDrafter(target), text, params, gate=k, k_max=5)

    assert record.texts["0"] == cut
    assert record.ends["0"].reason == ("eos" if cut[-1] == eos else "length")


@pytest.mark.parametrize("k", [0, 1, 4])
def test_a_text_fills_its_row_to_the_last_place(target, draft, k):
    params = SamplingParams(max_new_tokens=1000)

    record = run(target, ModelDrafter(draft), prompts((3, 9)), params, gate=k, capacity=40)

    plain = run(target, ModelDrafter(draft), prompts((3, 9)), params, capacity=40)
    assert record.texts == plain.texts
    assert {id: len(text) for id, text in record.texts.items()} == {"0": 37, "1": 31}
    assert {end.reason for end in record.ends.values()} == {"length"}


def test_what_an_earlier_request_left_in_a_row_is_never_seen(target, draft):
    params = SamplingParams(temperature=1.0, seed=3, max_new_tokens=30)
    texts = prompts((20, 3, 12, 1))

    reused = run(target, ModelDrafter(draft), texts, params, gate=3, slots=1)

    for index, text in enumerate(texts):
        fresh = run(target, ModelDrafter(draft), [text], params, gate=3, slots=1)
        assert reused.texts[str(index)] == fresh.texts["0"]


def test_garbage_behind_the_lengths_is_never_seen(target, draft):
    texts = prompts(LENGTHS)
    clean = run(target, ModelDrafter(draft), texts, GREEDY, gate=random_gate(4))
    drafter = ModelDrafter(draft)
    from engine.tiny_models import Record

    record = Record()
    engine = Engine(
        target, drafter, k_max=4, slots=4, capacity=120, gate=random_gate(4), observers=[record]
    )
    for index, text in enumerate(texts):
        engine.submit(str(index), text, GREEDY)

    while engine.step():
        for cache in (engine.target.cache, drafter.cache):
            for row in range(4):
                known = engine.rows[row].text if row < len(engine.rows) else []
                start = max(0, len(known) - 1)
                cache.keys[:, row, :, start:] = 1e6
                cache.values[:, row, :, start:] = -1e6

    assert record.texts == clean.texts
    assert record.acceptance == clean.acceptance


def test_requests_that_join_and_leave_change_nobody_elses_text(target, draft):
    texts = prompts([random.Random(2).randint(1, 40) for _ in range(60)])
    rng = random.Random(8)
    params = lambda i: SamplingParams(  # noqa: E731
        temperature=float(i % 3 > 0), seed=i, max_new_tokens=1 + i % 37
    )
    from engine.tiny_models import Record

    record = Record()
    engine = Engine(
        target, ModelDrafter(draft), k_max=4, slots=7, capacity=120, gate=random_gate(4),
        observers=[record],
    )  # fmt: skip
    waiting = list(enumerate(texts))

    while waiting or not engine.idle:
        for _ in range(rng.randint(0, 2)):
            if waiting:
                index, text = waiting.pop(0)
                engine.submit(str(index), text, params(index))
        engine.step()

    assert record.texts == one_by_one(target, texts, params)


@pytest.mark.parametrize("drafter", [NgramDrafter(3, 1), NgramDrafter(4, 2)])
def test_prompt_lookup_changes_no_text(target, drafter):
    texts = [text * 3 for text in prompts((2, 3, 5))]
    params = SamplingParams(temperature=0.6, seed=2, max_new_tokens=40)
    plain = run(target, ModelDrafter(target), texts, params)

    record = run(target, drafter, texts, params, gate=4)

    assert record.texts == plain.texts
    assert {k for report in record.rounds for k in report.k} >= {0, 4}


def test_a_proposal_names_its_widths_on_host_and_device():
    proposal = host_proposal([[1, 2], [], [3]], "cpu")

    assert isinstance(proposal, Proposal)
    assert proposal.widths == [2, 0, 1]
    assert proposal.tokens.tolist() == [[1, 2], [0, 0], [3, 0]]


PLAIN = run(tiny_model(0), ModelDrafter(tiny_model(0)), prompts((6,)), GREEDY).texts["0"]
