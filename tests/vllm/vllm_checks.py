"""What must hold of any run of vLLM: every number of ours equals its own."""

import math
from collections import defaultdict

import pytest

from specscope_hook.digest import token_digest

PROMPTS = [
    [5, 6, 7, 8, 9, 5, 6, 7],
    [10, 11, 12, 10, 11, 12, 10],
    [40, 41, 42, 43],
    [50, 51, 50, 51, 50, 51],
]
NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}


def assert_equal_to_its_own_counters(run):
    """In total, and request by request."""
    assert_equal_in_total(run)
    assert_prompts_equal(run)
    assert_equal_by_request(run)


def assert_equal_in_total(run, padding=0):
    """Totals against /metrics, positions against its per-position counter.

    padding: tokens that vLLM counts as proposals and nobody proposed: a prompt whose last token
    alone is left to compute is scheduled with k more. They are the rounds' padded_tokens.
    """
    metrics, k_max = run.result["metrics"], run.boot["k_max"]
    pairs = [
        (k, a) for round_ in run.rounds for k, a in zip(round_.k, round_.accepted, strict=True)
    ]
    drafts = sum(k > 0 for k, _ in pairs) + padding // max(1, k_max)
    assert drafts == metrics["vllm:spec_decode_num_drafts"]
    assert run.total("k") + padding == metrics["vllm:spec_decode_num_draft_tokens"]
    assert run.total("accepted") == metrics["vllm:spec_decode_num_accepted_tokens"]
    by_position = [sum(a > j for _, a in pairs) for j in range(k_max)]
    assert by_position == metrics["vllm:spec_decode_num_accepted_tokens_per_pos"]
    # A request that was put back computes its prompt again: the token of that is in no round.
    again = sum(request.preemptions for request in run.ends)
    assert again == metrics["vllm:num_preemptions"]
    assert len(pairs) + again == metrics["vllm:inter_token_latency_seconds"]["count"]
    outputs = sum(request.output_tokens for request in run.ends)
    assert outputs == metrics["vllm:generation_tokens"]
    assert outputs == run.total("emitted") + len(run.ends) + again


def assert_prompts_equal(run):
    """What was computed of prompts, and what was found in the cache; where none was put back."""
    prompts = sum(round_.prefill_tokens for round_ in run.rounds)
    cached = sum(request.cached_tokens for request in run.ends)
    assert prompts + cached == run.result["metrics"]["vllm:prompt_tokens"]


def assert_equal_by_request(run):
    """Against its detailed arrays per request; outputs token by token."""
    rows = defaultdict(list)
    for round_ in run.rounds:
        columns = (round_.requests, round_.k, round_.accepted, round_.emitted)
        for request, k, a, e in zip(*columns, strict=True):
            rows[request].append((k, a, e))
    ours = [
        (
            request.digest,
            request.prompt_tokens,
            1 + request.preemptions + sum(e for _, _, e in rows[request.request]),
            [k for k, _, _ in rows[request.request] if k],
            [a for k, a, _ in rows[request.request] if k],
        )
        for request in run.ends
    ]
    theirs = [
        (
            token_digest(own["tokens"]),
            own["prompt"],
            len(own["tokens"]),
            own["spec"]["drafted"] if own["spec"] else [],
            own["spec"]["accepted"] if own["spec"] else [],
        )
        for own in run.result["requests"]
    ]
    assert sorted(ours) == sorted(theirs)


def assert_the_times_add_up(run):
    for round_ in run.rounds:
        parts = (round_.draft_us, round_.verify_us, round_.sample_us, round_.idle_us)
        assert not any(map(math.isnan, parts)), round_
        assert sum(parts) == pytest.approx(round_.wall_us, rel=0.01, abs=1)
