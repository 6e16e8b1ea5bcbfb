"""A little of `make fuzz` with every run, on inputs that Hypothesis draws and can shrink."""

from __future__ import annotations

import random

import pytest
from fuzz import payloads, policies, statements
from hypothesis import given, settings
from hypothesis import strategies as st

SEEDS = st.integers(0, 1 << 62)


@given(SEEDS)
@settings(max_examples=150)
def test_a_damaged_message_is_refused_or_it_is_rows(seed):
    payloads.check(payloads.damaged(random.Random(seed)))


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_bytes_that_mean_nothing_are_refused(data):
    payloads.check(data)


@given(SEEDS)
@settings(max_examples=1000)
def test_an_odd_policy_is_refused_or_it_can_be_followed(seed):
    policies.check(policies.odd_policy(random.Random(seed)))


@given(st.text(max_size=200))
@settings(max_examples=300)
def test_a_text_that_is_no_policy_is_refused(text):
    policies.check(text)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return statements.Engine(tmp_path_factory.mktemp("fuzz"))


def test_a_statement_of_hostile_pieces_shows_no_secret(engine):
    ends = [engine.check(engine.statement(random.Random(seed))) for seed in range(1500)]

    assert {"refused", "no SQL", "ran"} <= set(ends)
