"""Bytes that a round moves, worked out by hand from a model card."""

import numpy as np
import pytest

from specscope_agent.card import ModelCard

DENSE = {"parameters": 8e9, "bytes_per_weight": 2.0, "kv_bytes_per_token": 131072.0}
# Eight experts of which two run a token: of 40 parameters, 10 are active.
EXPERTS = {"parameters": 40e9, "active_parameters": 10e9, "bytes_per_weight": 1.0,
           "kv_bytes_per_token": 1000.0}  # fmt: skip
DRAFT = {"draft": "small", "draft_parameters": 1e9, "draft_bytes_per_weight": 2.0,
         "draft_kv_bytes_per_token": 500.0}  # fmt: skip


def moved(boot, k=0, n_q=1, n_kv=0, draft_kv=0):
    columns = {"k": k, "n_q": n_q, "n_kv": n_kv, "draft_kv": draft_kv}
    given = {name: np.array([value], dtype=float) for name, value in columns.items()}
    return float(ModelCard.of(boot).model_bytes(**given)[0])


def test_a_dense_model_reads_its_weights_once_whatever_the_batch():
    assert moved(DENSE) == pytest.approx(16e9 + 131072)
    assert moved(DENSE, n_q=64, n_kv=1000) == pytest.approx(16e9 + 1064 * 131072)


@pytest.mark.parametrize(("n_q", "share"), [(0, 0.25), (1, 0.25), (2, 0.4375), (5, 1 - 0.75**5)])
def test_a_mixture_reads_the_experts_that_its_tokens_meet(n_q, share):
    assert moved(EXPERTS, n_q=n_q) == pytest.approx(40e9 * share + 1000 * n_q, rel=1e-9)


def test_a_drafter_reads_its_weights_for_each_position_and_nothing_in_rounds_without_drafts():
    boot = {**DENSE, **DRAFT}

    assert moved(boot, k=4, n_q=5, draft_kv=400) - moved(boot, n_q=5, draft_kv=400) == (
        pytest.approx(4 * 2e9 + 400 * 500)
    )
    assert moved({**DENSE, "draft": None}, k=4, n_q=5) == moved(DENSE, n_q=5)


@pytest.mark.parametrize("missing", ["parameters", "bytes_per_weight", "kv_bytes_per_token"])
def test_what_a_card_leaves_out_is_unknown(missing):
    assert np.isnan(moved({**DENSE, missing: None}))
    assert np.isnan(moved({**DENSE, **DRAFT, "draft_parameters": None}, k=4, n_q=5))
    assert not np.isnan(moved({**DENSE, **DRAFT, "draft_parameters": None}, n_q=5))
