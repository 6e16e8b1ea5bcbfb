"""SGLang's own requests and result processor, watched: our rows against what SGLang counted.

SGLANG_DEPENDENCIES names a directory with what its package imports, see environment.sh.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specscope_hook.columns import End

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]
ENDS = {"length": End.LENGTH, 2: End.EOS, 9: End.STOP}


@pytest.fixture(scope="module")
def found(sglang_source, tmp_path_factory):
    dependencies = os.environ.get("SGLANG_DEPENDENCIES")
    if not dependencies:
        pytest.skip("SGLANG_DEPENDENCIES is not set")
    script = Path(__file__).with_name("sglang_own_results.py")
    path = os.pathsep.join([str(sglang_source), dependencies])
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path_factory.mktemp("rings"))],
        env=os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("RESULT")]
    return json.loads(line.removeprefix("RESULT"))


@pytest.mark.parametrize("algorithm", ["EAGLE", "NONE"])
def test_rounds_and_requests_are_what_sglang_counted(found, algorithm):
    assert found[algorithm]["fault"] == ""
    requests = found[algorithm]["requests"]
    assert len(requests) == 24
    for theirs, ours in requests:
        if algorithm == "EAGLE":
            for name in ("rounds", "accepted", "histogram"):
                assert ours[name] == theirs[name], name
        else:
            assert ours["rounds"] == ours["emitted"]
        assert ours["output"] == theirs["output"] == ours["emitted"] + 1
        assert ours["contexts"][:1] in ([], [ours["prompt"]])
        said = theirs["end"]
        assert ours["end"] == ENDS[said["matched"] if said["type"] == "stop" else said["type"]]
        assert (ours["temperature"] == 0) == ours["greedy"]


def test_every_way_to_end_was_met(found):
    ends = {ours["end"] for run in found.values() for _, ours in run["requests"]}

    assert ends == {End.EOS, End.STOP, End.LENGTH}
