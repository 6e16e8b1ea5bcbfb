"""Real vLLM: every number of ours equals its own, and nothing of ours stops it."""

import json
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
    """Totals against /metrics, positions against its per-position counter, requests against
    its detailed per-request arrays, outputs token by token."""
    metrics, k_max = run.result["metrics"], run.boot["k_max"]
    pairs = [
        (k, a) for round_ in run.rounds for k, a in zip(round_.k, round_.accepted, strict=True)
    ]
    assert sum(k > 0 for k, _ in pairs) == metrics["vllm:spec_decode_num_drafts"]
    assert run.total("k") == metrics["vllm:spec_decode_num_draft_tokens"]
    assert run.total("accepted") == metrics["vllm:spec_decode_num_accepted_tokens"]
    by_position = [sum(a > j for _, a in pairs) for j in range(k_max)]
    assert by_position == metrics["vllm:spec_decode_num_accepted_tokens_per_pos"]
    assert len(pairs) == metrics["vllm:inter_token_latency_seconds"]["count"]
    prompts = sum(round_.prefill_tokens for round_ in run.rounds)
    assert prompts + sum(r.cached_tokens for r in run.ends) == metrics["vllm:prompt_tokens"]
    outputs = sum(request.output_tokens for request in run.ends)
    assert outputs == metrics["vllm:generation_tokens"]
    assert outputs == run.total("emitted") + len(run.ends)

    rows = defaultdict(list)
    for round_ in run.rounds:
        columns = (round_.requests, round_.k, round_.accepted, round_.emitted)
        for request, k, a, e in zip(*columns, strict=True):
            rows[request].append((k, a, e))
    ours = [
        (
            request.digest,
            request.prompt_tokens,
            1 + sum(e for _, _, e in rows[request.request]),
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


def test_ngram_rounds_equal_vllms_own_counters(run, tmp_path):
    rules = {"rules": [{"class": "short", "prompt_tokens": [0, 7]}], "default": "long"}
    (tmp_path / "rules.json").write_text(json.dumps(rules))

    got = run(
        {"speculative_config": NGRAM, "prompts": PROMPTS, "max_tokens": 40, "waves": 2},
        settings={"SPECSCOPE_CLASSES": str(tmp_path / "rules.json"), "SPECSCOPE_RNGS": "x"},
    )

    assert got.fault == ""
    assert got.ended
    assert got.boot["method"] == "ngram"
    assert (got.boot["k_max"], got.boot["layers"]) == (4, 2)
    assert got.boot["parameters"] == 147_904
    assert_equal_to_its_own_counters(got)
    assert_the_times_add_up(got)
    for request in got.ends:
        wanted = "short" if request.prompt_tokens < 7 else "long"
        assert got.classes[request.class_] == wanted
        assert 0 <= request.queue_ms <= request.ttft_ms <= request.e2e_ms
    assert sum("SPECSCOPE_RNGS is not a setting" in line for line in got.lines) == 1


def test_a_draft_model_under_a_batch_size_schedule_equals_vllms_own_counters(run, models):
    spec = {
        "method": "draft_model",
        "model": str(models / "target"),
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 4, 2], [5, 8, 0]],
    }

    got = run(
        {
            "speculative_config": spec,
            "prompts": [*PROMPTS, [60, 61], [70, 60, 70, 60, 70]],
            "max_tokens": 48,
            "temperature": 0.7,
        }
    )

    assert got.fault == ""
    assert got.boot["draft_parameters"] == 147_904
    assert {k for round_ in got.rounds for k in round_.k} >= {0}
    assert_equal_to_its_own_counters(got)
    assert_the_times_add_up(got)
    assert any(round_.draft_us > 0 for round_ in got.rounds)


def test_without_speculation_every_round_is_a_target_only_step(run):
    got = run({"speculative_config": None, "prompts": PROMPTS, "max_tokens": 16})

    assert got.boot["method"] == "none"
    assert got.total("k") == got.total("accepted") == 0
    assert got.total("emitted") == 15 * len(PROMPTS)
    assert {round_.draft_us for round_ in got.rounds} == {0.0}


def test_a_policy_cuts_the_drafts_of_the_requests_that_it_names(run, models, tmp_path):
    rules = {"rules": [{"class": "short", "prompt_tokens": [0, 7]}], "default": "long"}
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    policy = {"policy": 7, "kind": "table", "table": [{"class": "short", "k": 1}], "default_k": 3}
    spec = {"method": "draft_model", "model": str(models / "target"), "num_speculative_tokens": 3}

    got = run(
        {"speculative_config": spec, "prompts": PROMPTS, "max_tokens": 40},
        settings={
            "SPECSCOPE_CLASSES": str(tmp_path / "rules.json"),
            "SPECSCOPE_REQUEST_K": "on",
        },
        policy=json.dumps(policy),
    )

    seen = defaultdict(set)
    for round_ in got.rounds:
        for class_, k in zip(round_.classes, round_.k, strict=True):
            if round_.policy == 7:
                seen[got.classes[class_]].add(k)
    assert max(seen["short"]) == 1
    assert max(seen["long"]) == 3
    assert_equal_to_its_own_counters(got)


FAULTS = {
    "admission": ("vllm_requests", "Requests.admit", "vLLM, admission"),
    "tokens": ("vllm_scheduler", "SchedulerProbe._read_step", "vLLM, tokens"),
    "round": ("vllm_scheduler", "SchedulerProbe._end_step", "vLLM, round"),
    "worker": ("vllm_worker", "HostTimer.open", "worker"),
}


@pytest.mark.parametrize("point", FAULTS)
def test_a_fault_of_ours_detaches_the_hook_and_vllm_serves_on(run, point):
    module, target, said = FAULTS[point]
    owner, name = target.split(".")
    plugin = (
        f"import specscope_hook.adapters.{module} as module\n"
        "def broken(*args, **kwargs):\n"
        "    raise RuntimeError('planted')\n"
        f"setattr(module.{owner}, {name!r}, broken)\n"
    )

    got = run({"speculative_config": NGRAM, "prompts": PROMPTS, "max_tokens": 24}, plugin=plugin)

    assert [len(each["tokens"]) for each in got.result["requests"]] == [24] * len(PROMPTS)
    assert "planted" in got.fault
    assert said in got.fault
    assert sum("specscope is off, serving goes on" in line for line in got.lines) <= 1


def test_a_vllm_without_what_we_wrap_serves_and_one_line_says_so(run):
    plugin = (
        "import specscope_hook.adapters.vllm as module\n"
        "module._SCHEDULER['schedule'] = ('self', 'something', 'else')\n"
    )

    got = run({"speculative_config": NGRAM, "prompts": PROMPTS[:1], "max_tokens": 8}, plugin=plugin)

    assert len(got.result["requests"][0]["tokens"]) == 8
    assert got.boot == {}
    assert "is not attached, serving goes on" in got.lines[0]
    assert "Scheduler.schedule takes" in got.lines[0]


def test_no_space_for_a_ring_serves_and_one_line_says_so(run):
    got = run(
        {"speculative_config": NGRAM, "prompts": PROMPTS[:1], "max_tokens": 8},
        settings={"SPECSCOPE_RING_BYTES": str(1 << 60)},
    )

    assert len(got.result["requests"][0]["tokens"]) == 8
    assert got.boot == {}
    assert [line for line in got.lines if "cannot make a ring" in line]
