"""Faults of ours in real vLLM: it serves on, the hook is off, and the ring says why."""

import json

import pytest
from conftest import HERE
from vllm_checks import NGRAM, PROMPTS
from vllm_faults import POINTS
from vllm_rings import ONE_PROCESS, environment, finish

from specscope_hook.reader import RingReader


@pytest.fixture(scope="module")
def served(vllm_python, models, tmp_path_factory):
    """What came out with a fault at each point, and without; and the directory of the rings."""
    directory = tmp_path_factory.mktemp("faults")
    out = directory / "out.json"
    settings = {"SPECSCOPE_RINGS": str(directory), "SPECSCOPE_REQUEST_K": "on"}
    settings |= {"SPECSCOPE_RING_BYTES": str(1 << 20), **ONE_PROCESS}
    command = [vllm_python, str(HERE / "vllm_faults.py"), str(models / "target"), str(out)]
    code, said = finish(command, environment(settings), 1800)
    assert code == 0, said[-4000:]
    return json.loads(out.read_text()), directory, said


@pytest.mark.vllm_quick
def test_without_a_fault_the_hook_stays_on(served):
    assert served[0]["untouched"]["on"]


@pytest.mark.vllm_quick
@pytest.mark.parametrize("point", POINTS)
def test_a_fault_at_a_wrapped_point_turns_the_hook_off_and_vllm_serves_on(served, point):
    results, directory, _ = served

    assert results[point]["tokens"] == results[point]["again"] == results["untouched"]["tokens"]
    assert not results[point]["on"]
    ring = RingReader.open(directory / results[point]["ring"])
    assert "planted" in ring.fault_text


@pytest.mark.vllm_quick
def test_each_fault_is_said_once(served):
    lines = [line for line in served[2].splitlines() if "specscope is off" in line]

    assert len(lines) == len(POINTS)
    assert all("planted" in line for line in lines)


@pytest.mark.vllm_quick
def test_a_fault_as_the_engine_shuts_down_does_not_keep_it_from_it(served):
    results, directory, _ = served

    assert not RingReader.open(directory / results["shutdown"]["ring"]).ended


def test_a_fault_in_a_worker_of_its_own_reaches_the_ring(run):
    plugin = (
        "import specscope_hook.adapters.vllm_worker as module\n"
        "def broken(*args, **kwargs):\n"
        "    raise RuntimeError('planted')\n"
        "module.WorkerProbe._end_step = broken\n"
    )

    got = run({"speculative_config": NGRAM, "prompts": PROMPTS, "max_tokens": 24}, plugin=plugin)

    assert [len(each["tokens"]) for each in got.result["requests"]] == [24] * len(PROMPTS)
    assert "planted" in got.fault
    assert "worker" in got.fault
