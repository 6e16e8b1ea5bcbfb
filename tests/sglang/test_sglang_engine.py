"""SGLang's own engine with a real model on a CPU, watched: scheduler loop, worker and all.

SGLANG_PYTHON names an interpreter with torch and transformers, such as that of vLLM's environment,
in which specscope is installed; SGLANG_DEPENDENCIES as for the other tests, see environment.sh.
Without speculation: SGLang's own needs kernels for a GPU.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sglang_serving import read_ring

from specscope_hook.columns import End
from specscope_hook.digest import token_digest

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "vllm"))
from counters_traffic import checkpoints  # noqa: E402

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1800)]
PROMPTS = [[5, 6, 7, 5, 6, 7], [9, 8, 7, 9, 8, 7, 9, 8], [40, 41, 42]]
TOKENS = 24


@pytest.fixture(scope="module")
def serve(sglang_source, tmp_path_factory):
    """Runs an engine: its outputs, and the ring if there is one."""
    python, dependencies = (
        os.environ.get(name) for name in ("SGLANG_PYTHON", "SGLANG_DEPENDENCIES")
    )
    if not python or not dependencies:
        pytest.skip("SGLANG_PYTHON or SGLANG_DEPENDENCIES is not set")
    models, site = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("site")
    checkpoints(models)
    lines = (HERE / "without_pictures.py").read_text()
    (site / "sitecustomize.py").write_text(
        f"{lines}\npretend_pictures()\nsys.path.append({dependencies!r})\n"
    )

    def go(hook, **settings):
        directory = tmp_path_factory.mktemp("rings")
        engine = {"model_path": str(models / "target"), **settings}
        sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
        job = directory / "job.json"
        job.write_text(json.dumps({"engine": engine, "prompts": PROMPTS, "sampling": sampling}))
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SPECSCOPE_")}
        run = subprocess.run(
            [python, str(HERE / "sglang_engine.py"), str(job)],
            env=kept
            | {
                "PYTHONPATH": os.pathsep.join([str(site), str(sglang_source)]),
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "1",
                "GOMP_SPINCOUNT": "0",
                "HF_HUB_OFFLINE": "1",
                "SPECSCOPE_RINGS": str(directory) if hook else "off",
            },
            capture_output=True,
            text=True,
            timeout=900,
        )
        results = [line for line in run.stdout.splitlines() if "RESULT" in line]
        assert results, run.stderr[-3000:]
        return json.loads(results[0].partition("RESULT")[2]), read_ring(directory)

    return go


@pytest.mark.parametrize("overlap", [False, True])
def test_rounds_of_a_real_engine_are_what_it_gave_out_and_its_outputs_stay_the_same(serve, overlap):
    plain, nothing = serve(False, disable_overlap_schedule=not overlap)
    outputs, ring = serve(True, disable_overlap_schedule=not overlap)

    assert outputs == plain
    assert nothing is None
    assert ring.fault == ""
    assert (ring.boot["engine"], ring.boot["method"], ring.boot["k_max"]) == ("sglang", "none", 0)
    ends = {request.digest: request for request in ring.requests if request.ended_at}
    assert len(ends) == len(PROMPTS)
    for prompt, (tokens, reason) in zip(PROMPTS, outputs, strict=True):
        end = ends[token_digest(tokens)]
        assert reason == "length"
        assert (end.prompt_tokens, end.output_tokens) == (len(prompt), TOKENS)
        assert end.reason == End.LENGTH
        assert 0 < end.ttft_ms <= end.e2e_ms
    rounds = ring.rounds
    # The first token of each comes from the step that reads its prompt, which is no round.
    assert sum(sum(round_.emitted) for round_ in rounds) == len(PROMPTS) * (TOKENS - 1)
    assert all(set(round_.k) <= {0} for round_ in rounds)
    assert sum(round_.prefill_tokens for round_ in rounds) == sum(map(len, PROMPTS))
    for round_ in rounds:
        assert round_.verify_us > 0
        # With overlap a wall runs from result to result, and a pass may begin before it does.
        assert overlap or round_.verify_us <= round_.wall_us
