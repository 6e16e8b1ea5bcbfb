"""Real vLLM: every number of ours equals its own, and nothing of ours stops it."""

import json
from collections import defaultdict

import pytest
from vllm_checks import (
    NGRAM,
    PROMPTS,
    assert_equal_to_its_own_counters,
    assert_the_times_add_up,
)
from vllm_rings import ONE_PROCESS, environment, finish


@pytest.mark.vllm_quick
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


@pytest.mark.vllm_quick
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
            "ignore_eos": True,
        },
        settings=ONE_PROCESS,
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


def test_at_k_0_ngram_lookup_is_not_called_and_tokens_stay_the_same(run):
    plugin = (
        "import specscope_hook.adapters.vllm_worker as module\n"
        "attach = module.WorkerProbe.attach\n"
        "def with_a_picky_lookup(worker, **kwargs):\n"
        "    propose = worker.model_runner.drafter.propose\n"
        "    def at_least_1(k, *args, **more):\n"
        "        assert k, 'called for nothing'\n"
        "        return propose(k, *args, **more)\n"
        "    worker.model_runner.drafter.propose = at_least_1\n"
        "    attach(worker, **kwargs)\n"
        "module.WorkerProbe.attach = with_a_picky_lookup\n"
    )
    policy = {"policy": 7, "kind": "table", "table": [], "default_k": 0}

    got = run(
        {"speculative_config": NGRAM, "prompts": PROMPTS, "max_tokens": 40, "waves": 2},
        settings={"SPECSCOPE_REQUEST_K": "on", **ONE_PROCESS},
        plugin=plugin,
        policy=json.dumps(policy),
    )

    ruled = [round_ for round_ in got.rounds if round_.policy == 7]
    assert len(ruled) > 20
    assert {k for round_ in ruled[2:] for k in round_.k} == {0}
    assert_equal_to_its_own_counters(got)


def test_vllm_copies_our_settings_to_ray_workers(vllm_python, tmp_path):
    asks = (
        "from vllm.plugins import load_general_plugins\n"
        "load_general_plugins()\n"
        "from vllm.ray.ray_env import get_env_vars_to_copy\n"
        "print('SPECSCOPE_RINGS' in get_env_vars_to_copy())\n"
    )

    code, said = finish(
        [vllm_python, "-c", asks], environment({"SPECSCOPE_RINGS": str(tmp_path)}), 600
    )

    assert (code, said.splitlines()[-1]) == (0, "True")


@pytest.mark.vllm_quick
def test_a_vllm_without_what_we_wrap_serves_and_one_line_says_so(run):
    plugin = (
        "import specscope_hook.adapters.vllm as module\n"
        "module._SCHEDULER['schedule'] = ('self', 'something', 'else')\n"
    )

    got = run(
        {"speculative_config": NGRAM, "prompts": PROMPTS[:1], "max_tokens": 8},
        settings=ONE_PROCESS,
        plugin=plugin,
    )

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
