"""Prompt lookup against a plain search; replay as the known truth."""

import time

import pytest
from engine.tiny_models import TINY, prompts, run
from hypothesis import given, settings
from hypothesis import strategies as st

from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.drafter import pause
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.drafters.replay import ReplayDrafter


def check_rates(record, rates):
    """Every position is kept at its rate where it was tested, to within four standard errors."""
    kept, tried = [0] * len(rates), [0] * len(rates)
    for report in record.rounds:
        for k, accepted in zip(report.k, report.accepted, strict=True):
            for place in range(min(accepted + 1, k)):
                tried[place] += 1
                kept[place] += accepted > place
    for rate, some, all_ in zip(rates, kept, tried, strict=True):
        assert abs(some / all_ - rate) < 4 * (rate * (1 - rate) / all_) ** 0.5


def plain_search(text, longest, shortest, k):
    """The continuation of the last earlier place of the longest matching suffix."""
    for n in range(min(longest, len(text)), shortest - 1, -1):
        suffix = text[len(text) - n :]
        for end in range(len(text) - 1, n - 1, -1):
            if text[end - n : end] == suffix:
                return text[end : end + k]
    return []


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.lists(st.integers(1, 4), max_size=8),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 6),
)
def test_prompt_lookup_proposes_what_a_plain_search_proposes(text, steps, shortest, more, k):
    drafter = NgramDrafter(shortest + more, shortest)
    drafter.open(1, 64, 8, "cpu")
    drafter.admitted(0, text)
    seen = 1

    for step in [0, *steps]:
        seen = min(seen + step, len(text))
        known = text[:seen]
        assert drafter.look_up(0, known, k) == plain_search(known, shortest + more, shortest, k)


@pytest.mark.parametrize("rates", [(0.9, 0.9, 0.9, 0.9), (0.9, 0.6, 0.4, 0.2), (0.5,) * 4])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_replay_is_accepted_at_its_known_rates_and_changes_no_text(target, rates, temperature):
    texts = prompts((5, 8, 3) * 6)
    params = lambda i: SamplingParams(  # noqa: E731
        temperature=temperature, seed=i, max_new_tokens=90
    )
    plain = run(target, ModelDrafter(target), texts, params, slots=18)
    drafter = ReplayDrafter(plain.texts, rates, TINY.vocab, seed=2)

    record = run(target, drafter, texts, params, gate=4, slots=18)

    assert record.texts == plain.texts
    check_rates(record, rates)


def test_synthetic_acceptance_has_its_rates_and_runs_the_real_load(target, draft):
    rates = (0.9, 0.6, 0.4, 0.2)
    params = lambda i: SamplingParams(temperature=1.0, seed=i, max_new_tokens=90)  # noqa: E731

    record = run(
        target, ModelDrafter(draft), prompts((5,) * 16), params, gate=4, slots=16, synthetic=rates
    )

    check_rates(record, rates)
    assert all(report.draft_us > 0 for report in record.rounds)


def test_a_delay_makes_the_draft_part_longer_by_that_much(target, draft):
    params = SamplingParams(max_new_tokens=12)

    record = run(target, ModelDrafter(draft, delay_us=2000.0), prompts((4,)), params, gate=3)

    assert all(report.draft_us >= 6000 for report in record.rounds)


def test_a_pause_lasts_at_least_its_time():
    for microseconds in (0, 50, 1500):
        began = time.perf_counter()
        pause(microseconds)
        assert time.perf_counter() - began >= microseconds * 1e-6


def test_a_replay_without_a_record_proposes_nothing(target):
    record = run(
        target, ReplayDrafter({}, (1.0,) * 4, TINY.vocab), prompts((4,)),
        SamplingParams(max_new_tokens=5), gate=4,
    )  # fmt: skip

    assert {k for report in record.rounds for k in report.k} == {0}
