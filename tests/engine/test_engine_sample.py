"""Filters against the long way round, noise against its law."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specscope.engine.api import SamplingParams
from specscope.engine.decode import sampler
from specscope.engine.decode.batch import BatchState, SamplingNeeds, sampling_needs
from specscope.engine.decode.sampler import (
    COUPLED,
    draw_noise,
    filtered,
    gumbel,
    key,
    noise_of,
    sample,
    sampling_scores,
    uniform,
)
from specscope.engine.model.layout import pack


def state_with(*params):
    state = BatchState(len(params), 8, 0, "cpu")
    state.admit(0, [([1], 8, own) for own in params])
    return state


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 0.5, 2.0, 4.0]), min_size=6, max_size=6),
    st.integers(0, 8),
    st.sampled_from([0.05, 0.3, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([0.3, 1.0, 2.0]),
)
def test_filters_keep_what_a_plain_reading_keeps(logits, top_k, top_p, temperature):
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    state = state_with(params)
    p = torch.softmax(torch.tensor(logits, dtype=torch.float64) / temperature, -1).numpy()
    order = np.argsort(-p, kind="stable")
    kept = order[: top_k or len(p)]
    mass = p[kept] / p[kept].sum()
    kept = kept[np.cumsum(mass) - mass < top_p - 1e-12] if top_p < 1 else kept
    floor = p[kept].min()

    rows = torch.tensor([0])
    needs = sampling_needs(params)
    scores = sampling_scores(torch.tensor([logits], dtype=torch.float64), rows, state, needs)

    assert torch.isfinite(scores[0]).tolist() == (p >= floor * (1 - 1e-9)).tolist()


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 8.0])
def test_a_large_vocabulary_keeps_the_same_tokens_without_a_sort(scale, monkeypatch):
    generator = torch.Generator().manual_seed(7)
    scores = (scale * torch.randn(12, 9000, generator=generator)).round(decimals=2)
    top_k = torch.tensor([0, 1, 5, 300, 9000, 20_000] * 2)
    top_p = torch.tensor([1.0, 0.9, 0.3, 0.999, 1.0, 0.01] + [0.5] * 6)

    settings = ((top_k, top_p), (top_k, None), (None, top_p))
    by_digits = [filtered(scores, *own) for own in settings]
    monkeypatch.setattr(sampler, "SORTED_VOCAB", 1 << 20)

    for own, kept in zip(settings, by_digits, strict=True):
        assert kept.equal(filtered(scores, *own))
        assert kept.isfinite().any(1).all()
    neither = torch.zeros(12), torch.ones(12)
    for own, off in ((0, (neither[0], top_p)), (1, (top_k, neither[1]))):
        assert by_digits[2 - own].equal(filtered(scores, *off))


def test_ties_go_to_the_first_token_on_every_path():
    logits = torch.zeros(2, 5)
    state = state_with(SamplingParams(), SamplingParams(temperature=1.0, mode="greedy"))
    rows = torch.tensor([0, 1])

    for needs in (
        SamplingNeeds(),
        SamplingNeeds(noise=True, greedy=True),
        SamplingNeeds(noise=True, top_k=True, top_p=True, greedy=True),
    ):
        scores = sampling_scores(logits, rows, state, needs)
        draw_noise(pack((1, 1), "cpu"), state, needs, 5)
        noise = noise_of(pack((1, 1), "cpu"), state, needs, 5)
        assert sample(scores, noise).tolist() == [0, 0]


def test_temperature_zero_is_greedy_whatever_the_mode():
    assert sampling_needs(SamplingParams(mode="rejection", top_p=0.5)) == SamplingNeeds(greedy=True)
    assert sampling_needs(SamplingParams(temperature=0.5, mode="greedy")) == SamplingNeeds(
        greedy=True
    )
    assert sampling_needs(SamplingParams(temperature=0.5, mode="rejection")) == SamplingNeeds(
        noise=True, rejection=True
    )


def test_uniform_numbers_are_uniform_and_never_0_or_1():
    keys = key(torch.arange(50_000), torch.tensor(7), 2)

    drawn = uniform(keys).numpy()

    assert stats.kstest(drawn, "uniform").pvalue > 1e-3
    assert uniform(torch.tensor([0, -1, 2**63 - 1])).min() > 0
    assert uniform(torch.tensor([0, -1, 2**63 - 1])).max() < 1


@pytest.mark.parametrize("vary", ["seed", "position", "stream"])
def test_gumbel_noise_has_its_law_and_no_memory(vary):
    many = torch.arange(400)
    fixed = torch.full((400,), 5)
    keys = key(*(many if vary == name else fixed for name in ("seed", "position", "stream")))

    noise = gumbel(keys, 300).double().numpy()

    assert stats.kstest(noise.ravel(), "gumbel_r").pvalue > 1e-3
    rows = np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]
    tokens = np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1]
    assert max(abs(rows), abs(tokens)) < 4 / 300


def test_noise_is_a_function_of_its_key_alone():
    alone = gumbel(key(torch.tensor([3]), torch.tensor([8]), COUPLED), 50)

    company = gumbel(key(torch.tensor([1, 3, 9]), torch.tensor([2, 8, 4]), COUPLED), 50)

    assert torch.equal(company[1], alone[0])
