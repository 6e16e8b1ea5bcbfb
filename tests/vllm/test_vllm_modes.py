"""Real vLLM in its other modes: what a CPU can be made to run of what GPUs run by default.

The V2 model runner needs Triton, which has no compiler for CPUs; its interpreter runs the same
kernels, at a second a round. vLLM turns asynchronous scheduling off on CPUs; left on it works.
"""

import json

import pytest
from conftest import HERE
from vllm_checks import (
    NGRAM,
    PROMPTS,
    assert_equal_in_total,
    assert_equal_to_its_own_counters,
    assert_prompts_equal,
    assert_the_times_add_up,
)
from vllm_rings import CORES, ONE_PROCESS, environment, finish

INTERPRETED = """
import os, types
os.environ["TRITON_INTERPRET"] = "1"
if os.environ.get("VLLM_TARGET_DEVICE") == "cpu":
    class Driver:
        @staticmethod
        def is_active():
            return True
    from triton.backends import backends
    backends["cpu"] = types.SimpleNamespace(driver=Driver, compiler=None)
"""
ASYNCHRONOUS = """
from vllm.platforms.cpu import CpuPlatform
original = CpuPlatform.check_and_update_config.__func__
def keep(cls, config):
    original(cls, config)
    config.scheduler_config.async_scheduling = True
if "keep" not in CpuPlatform.check_and_update_config.__func__.__name__:
    CpuPlatform.check_and_update_config = classmethod(keep)
"""


def drafting(models, **more):
    """The target as its own draft: all is accepted at temperature 0, little above."""
    spec = {"method": "draft_model", "model": str(models / "target"), "num_speculative_tokens": 3}
    return spec | more


@pytest.mark.parametrize("scheduling", ["synchronous", "asynchronous"])
def test_the_v2_runners_rounds_equal_vllms_own_counters(run, models, scheduling):
    job = {"speculative_config": drafting(models), "prompts": PROMPTS[:3], "max_tokens": 12}

    got = run(
        job,
        settings=ONE_PROCESS | {"VLLM_USE_V2_MODEL_RUNNER": "1"},
        site=INTERPRETED,
        plugin=ASYNCHRONOUS if scheduling == "asynchronous" else "",
    )

    assert "Using V2 Model Runner" in got.log
    assert (got.fault, got.ended) == ("", True)
    assert_equal_to_its_own_counters(got)
    assert got.total("accepted") > 0
    if scheduling == "synchronous":  # on the host's clock steps in flight overlap
        assert_the_times_add_up(got)
    assert any(round_.draft_us > 0 for round_ in got.rounds)


@pytest.mark.parametrize("runner", ["V1", "V2"])
def test_under_asynchronous_scheduling_a_policy_lowers_what_is_drafted(run, models, runner):
    policy = {"policy": 7, "kind": "table", "table": [], "default_k": 1}
    second = runner == "V2"
    job = {"speculative_config": drafting(models), "prompts": PROMPTS[:3]}

    got = run(
        job | {"max_tokens": 16 if second else 40},
        settings={"SPECSCOPE_REQUEST_K": "on", "VLLM_USE_V2_MODEL_RUNNER": str(int(second))},
        site=INTERPRETED if second else "",
        plugin=ASYNCHRONOUS,
        policy=json.dumps(policy),
    )

    assert (got.fault, got.ended) == ("", True)
    assert_equal_to_its_own_counters(got)
    under = [k for round_ in got.rounds if round_.policy == 7 for k in round_.k]
    assert under.count(1) > 5
    assert under[-1] == 1


def test_two_tensor_parallel_ranks_write_one_ring_whose_rounds_equal_vllms_counters(run, models):
    spec = drafting(models, draft_tensor_parallel_size=2)
    job = {"speculative_config": spec, "prompts": PROMPTS, "max_tokens": 24}
    cores = f"{CORES[0]}|{CORES[-1]}"

    got = run(
        job | {"engine": {"tensor_parallel_size": 2}},
        settings={"VLLM_CPU_OMP_THREADS_BIND": cores},
    )

    assert (got.fault, got.ended) == ("", True)
    assert got.boot["tensor_parallel"] == 2
    assert_equal_to_its_own_counters(got)
    assert any(round_.verify_us > 0 for round_ in got.rounds)


def test_what_a_grammar_refuses_is_not_proposed(run):
    job = {"speculative_config": NGRAM, "prompts": [*PROMPTS, *PROMPTS], "max_tokens": 24}

    got = run(job | {"regex": "(ab|cd){30}", "ignore_eos": True}, settings=ONE_PROCESS)

    assert got.fault == ""
    assert_equal_to_its_own_counters(got)
    assert [request.guided for request in got.ends].count(1) == len(PROMPTS)


def test_cached_prefixes_are_prompt_tokens_that_nobody_computed(run):
    long = [5 + n % 300 for n in range(129)]
    job = {"speculative_config": NGRAM, "prompts": [long, [*long, 7, 8], *PROMPTS]}

    job |= {"max_tokens": 12, "waves": 3, "engine": {"block_size": 32}}
    got = run(job, settings=ONE_PROCESS)

    assert got.fault == ""
    assert sum(request.cached_tokens for request in got.ends) > 200
    padding = sum(round_.padded_tokens for round_ in got.rounds)
    assert padding == 8  # in the second and third wave of the prompt of 4 blocks and a token
    assert_equal_in_total(got, padding)
    assert_prompts_equal(got)


def test_a_request_that_is_put_back_is_recorded_as_preempted(run):
    prompts = [[5 + n + 7 * i % 300 for n in range(60)] for i in range(6)]
    job = {"speculative_config": NGRAM, "prompts": prompts, "max_tokens": 120, "ignore_eos": True}

    job |= {"engine": {"num_gpu_blocks_override": 18, "block_size": 32}}
    got = run(job, settings=ONE_PROCESS)

    assert got.fault == ""
    assert sum(request.preemptions for request in got.ends) > 0
    assert sum(round_.preempted for round_ in got.rounds) > 0
    assert_equal_in_total(got, sum(round_.padded_tokens for round_ in got.rounds))
    lengths = [len(own["tokens"]) for own in got.result["requests"]]
    assert sorted(request.output_tokens for request in got.ends) == sorted(lengths)


def test_adapters_are_named_and_give_classes(run, vllm_python, models, tmp_path):
    make = [vllm_python, str(HERE / "vllm_models.py"), "--adapter", str(tmp_path / "lora")]
    assert finish(make, environment({}), 600)[0] == 0
    rules = {"rules": [{"class": "acme", "adapter": "^acme-"}], "default": "base"}
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    job = {"speculative_config": NGRAM, "prompts": PROMPTS, "max_tokens": 24}

    got = run(
        job | {"lora": str(tmp_path / "lora"), "engine": {"enable_lora": True}},
        settings=ONE_PROCESS | {"SPECSCOPE_CLASSES": str(tmp_path / "rules.json")},
    )

    assert got.fault == ""
    assert_equal_to_its_own_counters(got)
    labels = [got.classes[request.class_] for request in got.ends]
    assert sorted(labels) == ["acme"] * 2 + ["base"] * 2


@pytest.mark.parametrize(
    ("kind", "role"), [("kv_producer", "prefill"), ("kv_consumer", "decode"), ("kv_both", "both")]
)
def test_a_part_in_disaggregated_serving_is_named(run, tmp_path, kind, role):
    transfer = {
        "kv_connector": "ExampleConnector",
        "kv_role": kind,
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "kv")},
    }
    job = {"speculative_config": NGRAM, "prompts": PROMPTS, "max_tokens": 16}

    got = run(job | {"engine": {"kv_transfer_config": transfer}}, settings=ONE_PROCESS)

    assert got.fault == ""
    assert got.boot["role"] == role
    assert_equal_to_its_own_counters(got)
