"""Acceptance and recorded times are right, which the texts alone cannot show.

Verification hides every fault of a drafter from the text. A target that drafts for itself must
accept everything, replay must be accepted at its planted rates, and host-side drafters must see
each row's own text.
"""

from dataclasses import replace

import pytest
import torch
from engine.plain_decoding import decode_plainly, letters
from engine.test_engine_drafters import check_rates, plain_search
from engine.tiny_models import TINY, Record, near, prompts, random_gate, run, tiny_model

import specscope.engine.decode.verify as verify
from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode.batch import BatchState
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.drafter import Proposal
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.drafters.replay import ReplayDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.sampler import RESIDUAL, gumbel, key

LENGTHS = (1, 2, 5, 14, 30, 7)
SAMPLED = SamplingParams(temperature=1.0, max_new_tokens=24)
SETTINGS = {
    "cold": replace(SAMPLED, temperature=0.6),
    "hot": replace(SAMPLED, temperature=1.7),
    "top-p": replace(SAMPLED, temperature=0.8, top_p=0.7),
    "top-k": replace(SAMPLED, temperature=1.3, top_k=6),
    "both filters": replace(SAMPLED, temperature=0.9, top_k=20, top_p=0.8),
}
MODES = ("rejection", "coupled")
LONG = replace(TINY, max_context=1024)


def kinds(index):
    """Greedy, coupled and rejection rows of different temperatures and filters."""
    settings = [SamplingParams(max_new_tokens=24), *SETTINGS.values()]
    own = settings[index % len(settings)]
    return replace(own, mode=MODES[index % 2], seed=index)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("depth", "graphs"), [(0, None), (2, None), (1, True)])
def test_a_target_that_drafts_for_itself_accepts_everything(target, settings, mode, depth, graphs):
    record = run(
        target, ModelDrafter(target), prompts(LENGTHS),
        lambda i: replace(SETTINGS[settings], mode=mode, seed=i),
        gate=random_gate(4), depth=depth, graphs=graphs,
    )  # fmt: skip

    assert record.acceptance == 1.0


@pytest.mark.parametrize(("depth", "graphs"), [(0, None), (1, None), (2, True)])
def test_mixed_rows_accept_everything_that_the_target_drafts(target, depth, graphs):
    texts = prompts(LENGTHS * 2)

    record = run(
        target, ModelDrafter(target), texts, kinds, gate=random_gate(4), depth=depth,
        graphs=graphs, slots=7,
    )  # fmt: skip

    assert record.acceptance == 1.0
    assert len(record.texts) == len(texts)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("graphs", [None, True])
def test_replay_has_its_rates_at_any_depth(target, depth, graphs):
    rates, texts = (0.9, 0.6, 0.4, 0.8), prompts((5, 8, 3, 2) * 4)
    params = lambda i: replace(SAMPLED, seed=i, max_new_tokens=60)  # noqa: E731
    plain = run(target, ModelDrafter(target), texts, params, slots=16)
    drafter = ReplayDrafter(plain.texts, rates, TINY.vocab, seed=2)

    record = run(target, drafter, texts, params, gate=4, slots=9, depth=depth, graphs=graphs)

    assert record.texts == plain.texts
    check_rates(record, rates)


class Watched(NgramDrafter):
    """Keeps what was proposed for which text."""

    def open(self, rows, capacity, k_max, device):
        super().open(rows, capacity, k_max, device)
        self.seen = []

    def propose(self, batch, ks):
        proposal = super().propose(batch, ks)
        lists = proposal.tokens.tolist()
        for row, k in enumerate(ks):
            own = lists[row][: proposal.widths[row]]
            self.seen.append((batch.requests[row].id, list(batch.texts[row]), k, own))
        return proposal


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("cache", [None, 150])
def test_a_row_that_changes_hands_proposes_from_its_own_text_alone(target, depth, cache):
    texts = [[i % 5, 1, 2, i % 5, 1, 2, 3] * (1 + i % 3) for i in range(10)]
    drafter = Watched(3, 1)

    record = run(
        target, drafter, texts, lambda i: SamplingParams(max_new_tokens=6 + 4 * (i % 4)),
        gate=random_gate(4), slots=3, capacity=90, depth=depth, cache_tokens=cache,
    )  # fmt: skip

    assert len({id for id, *_ in drafter.seen}) == len(texts)
    assert sum(len(own) for *_, own in drafter.seen) > 50
    for id, text, k, own in drafter.seen:
        whole = texts[int(id)] + record.texts[id]
        assert text == whole[: len(text)]
        assert own == (plain_search(text, 3, 1, k) if k else [])


def test_a_zero_residual_falls_back_on_the_targets_own_law():
    state = BatchState(1, 8, 1, "cpu")
    probable = torch.tensor([[[0, 0, 0.25, 0, 0.75], [1.0, 0, 0, 0, 0]]])
    tokens = torch.tensor([[2]])
    proposal = Proposal([1], tokens, probable[:, :1])
    counts = torch.tensor([0]), torch.tensor([1])

    drawn = []
    for seed in range(400):
        state.seed.fill_(seed)
        drawn.append(verify._redraw(probable, tokens, proposal, counts, state).item())

    assert set(drawn) == {2, 4}
    assert drawn.count(4) / 400 == pytest.approx(0.75, abs=4 * (0.1875 / 400) ** 0.5)


@pytest.mark.parametrize("length", [255, 256, 257, 258, 259, 600])
def test_long_prompts_are_read_in_several_passes_by_target_and_draft(length):
    target = tiny_model(0, LONG)
    texts = prompts((length, 3, 300))
    params = lambda i: replace(kinds(i), max_new_tokens=5)  # noqa: E731

    record = run(
        target, ModelDrafter(target), texts, params, gate=3, capacity=700, prefill_tokens=900
    )

    assert record.acceptance == 1.0
    for index, text in enumerate(texts):
        if params(index).mode != "rejection" or params(index).greedy:
            expected, _ = decode_plainly(target, text, params(index), 700)
            assert record.texts[str(index)] == expected


def test_a_draft_that_reads_a_long_prompt_late_accepts_as_one_that_read_it_at_once():
    target = tiny_model(0, LONG)
    draft, rounds = near(target, 0.05), 0

    def late(sequences, waiting):
        nonlocal rounds
        rounds += 1
        return [0 if rounds < 6 else 4] * len(sequences)

    params = SamplingParams(max_new_tokens=40)
    gated = run(target, ModelDrafter(draft), prompts((530,)), params, gate=late, capacity=700)
    longer = prompts((530,))[0] + gated.texts["0"][:5]
    at_once = run(target, ModelDrafter(draft), [longer], params, gate=4, capacity=700)

    drafted = [r for r in gated.rounds if r.k[0]]
    pairs = list(zip(drafted, at_once.rounds, strict=False))
    assert len(pairs) > 5
    assert all(a.accepted == b.accepted for a, b in pairs if a.ends == b.ends == ["none"])


def test_the_end_of_text_comes_before_a_stop_string_that_the_same_token_completes(target):
    plain = run(target, ModelDrafter(target), prompts((5,)), SamplingParams(max_new_tokens=12))
    text = plain.texts["0"]
    place = next(i for i in range(3, 12) if text[i] not in text[:i])
    stop = letters(text[place - 1 : place + 1])

    for eos, reason in (((text[place],), "eos"), ((), "stop")):
        record = run(
            target, ModelDrafter(target), prompts((5,)),
            SamplingParams(max_new_tokens=12, eos=eos, stop=(stop,)), gate=3, detokenize=letters,
        )  # fmt: skip
        assert record.texts["0"] == text[: place + 1]
        assert record.ends["0"].reason == reason


@pytest.mark.parametrize("depth", [0, 1])
def test_a_listener_hears_the_text_and_no_token_behind_its_end(target, depth):
    plain = run(target, ModelDrafter(target), prompts((5,)), SamplingParams(max_new_tokens=20))
    text = plain.texts["0"]
    # In the middle of a block: the target accepts all four tokens of its own draft.
    place = next(i for i in range(5, 20) if i % 5 < 4 and text[i] not in text[:i])
    record, heard = Record(), []
    engine = Engine(
        target, ModelDrafter(target), k_max=4, slots=1, capacity=60, gate=fixed_gate(4),
        observers=[record], detokenize=letters, depth=depth,
    )  # fmt: skip
    params = SamplingParams(max_new_tokens=20, stop=(letters([text[place]]),))
    engine.submit("0", prompts((5,))[0], params, listener=heard.extend)
    while engine.step():
        pass

    assert heard == record.texts["0"] == text[: place + 1]
    assert sum(sum(report.emitted) for report in record.rounds) == len(heard)


def test_a_row_that_moves_keeps_count_of_what_its_draft_has_not_read(target):
    """The first row ends, the second takes its place unread, and is drafted for only then."""

    def gate(sequences, waiting):
        return [0 if len(sequences) == 2 else 3] * len(sequences)

    record = run(
        target, ModelDrafter(target), prompts((4, 30)),
        lambda i: SamplingParams(max_new_tokens=(12, 40)[i]), gate=gate, slots=2,
    )  # fmt: skip

    drafted = [report for report in record.rounds if any(report.k)]
    assert len(drafted) > 4
    assert record.acceptance == 1.0


def test_one_row_read_late_is_the_row_read_at_once(target):
    texts, params = prompts((6,)), replace(SAMPLED, max_new_tokens=40)

    records = [
        run(target, ModelDrafter(target), texts, params, gate=3, slots=1, depth=depth)
        for depth in (0, 1, 2)
    ]

    assert all(record.texts == records[0].texts for record in records)
    assert all(record.acceptance == 1.0 for record in records)


@pytest.mark.parametrize("temperature", [1.0, 1.6])
def test_target_only_rejection_sampling_is_a_plain_draw_of_its_own_stream(target, temperature):
    text, params = prompts((6,))[0], replace(SAMPLED, mode="rejection", seed=11)
    params = replace(params, temperature=temperature, max_new_tokens=20)

    record = run(target, ModelDrafter(target), [text], params)

    for token in record.texts["0"]:
        scores = target.score(torch.tensor([text]))[0, -1] / temperature
        word = key(torch.tensor([11]), torch.tensor([len(text)]), RESIDUAL)
        assert token == int((scores + gumbel(word, len(scores))[0]).argmax())
        text = [*text, token]


@pytest.mark.parametrize("graphs", [None, True])
def test_rejection_rows_in_a_batch_change_no_text_of_coupled_and_greedy_rows(target, graphs):
    draft, texts = near(target, 0.1), prompts(LENGTHS * 2)
    alone = run(target, ModelDrafter(target), texts, kinds, gate=0, slots=12)

    record = run(
        target, ModelDrafter(draft), texts, kinds, gate=random_gate(4), slots=12, graphs=graphs
    )

    assert 0.05 < record.acceptance < 0.95
    for index in range(len(texts)):
        if kinds(index).mode == "coupled" or kinds(index).greedy:
            assert record.texts[str(index)] == alone.texts[str(index)]
