"""The law of whole rounds over many seeds against the target's, and bugs that must not pass.

Joint law of the first three tokens, by chi-square: a shared random stream leaves each token's own
law nearly right and bends the joint.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from engine.head_plants import random_head
from engine.tiny_models import TINY, near, run, tiny_model
from scipy import stats

import specscope.engine.decode.verify as verify
from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.eagle import EagleDrafter
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.sampler import DRAFT, RESIDUAL, gumbel, key

VOCAB, LENGTH, DRAWS = 7, 3, 8_000
PROMPT = [3, 1, 4, 1, 5, 3, 1, 4]
CONFIG = replace(TINY, vocab=VOCAB)
TARGET = tiny_model(3, CONFIG)
DRAFTS = near(TARGET, 0.06, seed=4)


def exact_law(params):
    """Probability of each of the VOCAB ** LENGTH continuations, by enumeration."""
    law = np.zeros((VOCAB,) * LENGTH)
    for text in itertools.product(range(VOCAB), repeat=LENGTH):
        logits = TARGET.score(torch.tensor([PROMPT + list(text)]))[0, len(PROMPT) - 1 : -1]
        law[text] = np.prod([filtered(row, params)[t] for row, t in zip(logits, text, strict=True)])
    return law


def filtered(logits, params):
    """Temperature, then top-k, then top-p, the long way round."""
    p = torch.softmax(logits / params.temperature, -1).numpy()
    order = np.argsort(-p)
    kept = order[: params.top_k or VOCAB]
    mass = p[kept] / p[kept].sum()
    kept = kept[(np.cumsum(mass) - mass < params.top_p)]
    out = np.zeros(VOCAB)
    out[kept] = p[kept]
    return out / out.sum()


def chi_square_p(drafter, params, gate=2):
    counts = np.zeros((VOCAB,) * LENGTH)
    record = run(
        TARGET, drafter, [PROMPT] * DRAWS, lambda i: replace(params, seed=i),
        gate=gate, k_max=4, slots=1000, capacity=16, prefill_tokens=1000 * len(PROMPT),
    )  # fmt: skip
    for text in record.texts.values():
        counts[tuple(text)] += 1
    expected = DRAWS * exact_law(params)
    assert counts[expected == 0].sum() == 0
    common = expected >= 5
    seen = np.append(counts[common], counts[~common].sum())
    due = np.append(expected[common], expected[~common].sum())
    keep = due > 0
    return stats.chisquare(seen[keep], due[keep]).pvalue


SAMPLED = SamplingParams(temperature=1.0, max_new_tokens=LENGTH)
LAWS = {
    "plain": SAMPLED,
    "hot": replace(SAMPLED, temperature=1.7),
    "nucleus": replace(SAMPLED, top_p=0.8),
    "top four": replace(SAMPLED, top_k=4, temperature=0.8),
}


@pytest.mark.parametrize("settings", LAWS)
@pytest.mark.parametrize("mode", ["rejection", "coupled"])
def test_speculation_leaves_the_targets_law(settings, mode):
    assert chi_square_p(ModelDrafter(DRAFTS), replace(LAWS[settings], mode=mode)) > 1e-3


@pytest.mark.parametrize("mode", ["rejection", "coupled"])
def test_a_draft_head_leaves_the_targets_law(mode):
    drafter = EagleDrafter(random_head(replace(CONFIG, layers=1)), TARGET)

    assert chi_square_p(drafter, replace(LAWS["nucleus"], mode=mode)) > 1e-3


@pytest.mark.parametrize("mode", ["rejection", "coupled"])
def test_target_only_decoding_has_the_targets_law(mode):
    assert chi_square_p(ModelDrafter(DRAFTS), replace(SAMPLED, mode=mode), gate=0) > 1e-3


@pytest.mark.parametrize("settings", ["plain", "nucleus"])
def test_a_sure_draft_leaves_the_targets_law(settings):
    params = replace(LAWS[settings], mode="rejection")

    assert chi_square_p(NgramDrafter(3, 1), params) > 1e-3


@pytest.mark.parametrize("settings", ["plain", "nucleus"])
def test_redrawing_from_the_target_instead_of_its_excess_is_caught(settings, monkeypatch):
    def planted(probable, drafted, proposal, counts, state):
        accepted, _ = counts
        rows, _, vocab = probable.shape
        p = probable.gather(1, accepted[:, None, None].expand(-1, 1, vocab)).squeeze(1)
        return (
            p.log()
            + gumbel(key(state.seed[:rows], state.lengths[:rows] + accepted, RESIDUAL), vocab)
        ).argmax(-1)

    monkeypatch.setattr(verify, "_redraw", planted)

    assert chi_square_p(ModelDrafter(DRAFTS), replace(LAWS[settings], mode="rejection")) < 1e-9


def test_a_stream_shared_by_draft_and_redraw_is_caught(monkeypatch):
    monkeypatch.setattr(verify, "RESIDUAL", DRAFT)

    poor = ModelDrafter(near(TARGET, 0.25, seed=4))

    # Mild, since the redrawn token is never the one that the noise had favoured.
    assert chi_square_p(poor, replace(SAMPLED, mode="rejection")) < 1e-5


def test_a_stream_shared_by_draft_and_acceptance_is_caught(monkeypatch):
    def planted(probable, drafted, proposal, state):
        rows, width = drafted.shape
        places = state.lengths[:rows, None] + torch.arange(width)
        keys = key(state.seed[:rows, None], places, DRAFT).flatten()
        noise = gumbel(keys, VOCAB).view(rows, width, VOCAB)
        race = torch.exp(-noise.gather(2, drafted[:, :, None]).squeeze(2))
        u = 1 - torch.exp(-race)
        p = probable[:, :-1].gather(2, drafted[:, :, None]).squeeze(2)
        q = proposal.laws[:rows, :width].gather(2, drafted[:, :, None]).squeeze(2)
        return u * q < p

    monkeypatch.setattr(verify, "_rejection_test", planted)

    assert chi_square_p(ModelDrafter(DRAFTS), replace(SAMPLED, mode="rejection")) < 1e-9


def test_a_draft_law_before_its_filters_is_caught(monkeypatch):
    class Unfiltered(ModelDrafter):
        def propose(self, batch, ks):
            proposal = super().propose(batch, ks)
            flat = torch.full_like(proposal.laws, 1 / VOCAB)
            return replace(proposal, laws=flat)

    assert chi_square_p(Unfiltered(DRAFTS), replace(LAWS["nucleus"], mode="rejection")) < 1e-9


def test_a_bonus_taken_from_the_place_before_is_caught(monkeypatch):
    sound = verify.sample

    def planted(scores, noise):
        return sound(scores, noise).roll(1)

    monkeypatch.setattr(verify, "sample", planted)

    assert chi_square_p(ModelDrafter(DRAFTS), replace(SAMPLED, mode="coupled")) < 1e-9


def test_rejection_accepts_the_overlap_of_both_laws():
    params = replace(SAMPLED, mode="rejection", max_new_tokens=2)
    p = filtered(TARGET.score(torch.tensor([PROMPT]))[0, -1], params)
    q = filtered(DRAFTS.score(torch.tensor([PROMPT]))[0, -1], params)

    record = run(
        TARGET, ModelDrafter(DRAFTS), [PROMPT] * 4000, lambda i: replace(params, seed=i),
        gate=1, slots=4000, capacity=16, prefill_tokens=4000 * len(PROMPT),
    )  # fmt: skip

    first = record.rounds[0]
    overlap = np.minimum(p, q).sum()
    assert np.mean(first.accepted) == pytest.approx(overlap, abs=4 * 0.5 / 4000**0.5)


def test_equal_laws_and_a_forced_rejection_fall_back_on_the_target():
    engine = Engine(
        TARGET, ModelDrafter(TARGET), k_max=1, slots=2, capacity=16, gate=lambda s, _: [1] * len(s)
    )
    engine.submit("0", PROMPT, replace(SAMPLED, mode="rejection"))
    engine._prefill()
    probable = torch.tensor([[[0.5, 0.5, 0, 0, 0, 0, 0], [0, 0, 0, 1.0, 0, 0, 0]]])
    tokens = torch.tensor([[0]])
    proposal = verify.Proposal([1], tokens, probable[:, :1])

    counts = torch.tensor([0]), torch.tensor([1])
    token = verify._redraw(probable, tokens, proposal, counts, engine.state)

    assert token.item() in (0, 1)


@pytest.mark.parametrize("q", [1e-30, 1.0])
def test_what_the_target_excludes_is_never_kept(q, monkeypatch):
    smallest = torch.tensor([[2.0**-54]], dtype=torch.float64)
    monkeypatch.setattr(verify, "_uniform", lambda *_: smallest)
    probable = torch.zeros(1, 2, VOCAB)
    drafts = torch.zeros(1, 1, VOCAB)
    drafts[0, 0, 2] = q
    proposal = verify.Proposal([1], torch.tensor([[2]]), drafts)

    kept = verify._rejection_test(probable, proposal.tokens, proposal, None)

    assert not kept.any()
