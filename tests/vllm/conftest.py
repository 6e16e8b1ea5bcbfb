"""Real vLLM, in its own environment: VLLM_PYTHON names its interpreter, see environment.sh."""

import json
import os
import threading
import time
from pathlib import Path

import pytest
from counters_traffic import checkpoints
from vllm_rings import Run, environment, finish, read_ring

from specscope_hook.reader import RingReader

HERE = Path(__file__).parent


def pytest_configure(config):
    config.addinivalue_line("markers", "vllm: real vLLM in its own environment; minutes")
    config.addinivalue_line("markers", "vllm_quick: the part of them that fits a push")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.timeout(2400))


@pytest.fixture(scope="session")
def vllm_python():
    path = os.environ.get("VLLM_PYTHON")
    if not path:
        pytest.skip("VLLM_PYTHON is not set")
    return path


@pytest.fixture(scope="session")
def models(vllm_python, tmp_path_factory):
    """A directory with two tiny random models, `target` and `draft`."""
    directory = tmp_path_factory.mktemp("models")
    make = [vllm_python, str(HERE / "vllm_models.py"), str(directory)]
    code, said = finish(make, environment({}), 600)
    assert code == 0, said[-4000:]
    return directory


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """The bundled pair as checkpoints that vLLM loads: trained, so it accepts as text does."""
    directory = tmp_path_factory.mktemp("pair")
    checkpoints(directory)
    return directory


@pytest.fixture
def run(vllm_python, models, tmp_path):
    """Runs a job of vllm_run.py with the hook on, and reads the ring afterwards.

    plugin: source of another vLLM plug-in, loaded beside ours, for faults.
    site: source of what every Python process of the run does first.
    policy: written to the control page as soon as the ring is there.
    """

    def go(
        job: dict,
        *,
        settings: dict[str, str] | None = None,
        plugin: str = "",
        site: str = "",
        policy: str = "",
    ) -> Run:
        rings = tmp_path / "rings"
        rings.mkdir()
        extra = {"SPECSCOPE_RINGS": str(rings), "SPECSCOPE_REPLICA": "r0"} | (settings or {})
        if plugin or site:
            extra["PYTHONPATH"] = str(_plugin(tmp_path, plugin, site))
        job = {"model": str(models / "target")} | job
        (tmp_path / "job.json").write_text(json.dumps(job))
        out = tmp_path / "out.json"
        command = [vllm_python, str(HERE / "vllm_run.py"), str(tmp_path / "job.json"), str(out)]
        over = threading.Event()
        writer = threading.Thread(target=_write_policy, args=(rings, policy, over))
        writer.start()
        try:
            code, said = finish(command, environment(extra), 1200)
        finally:
            over.set()
            writer.join()
        assert code == 0, said[-4000:]
        return read_ring(rings, Run(json.loads(out.read_text()), said))

    return go


def _plugin(directory: Path, source: str, site: str) -> Path:
    """Another distribution with a general plug-in, made of two files, and a sitecustomize."""
    place = directory / "plugin"
    (place / "interfering-1.dist-info").mkdir(parents=True)
    (place / "interfering.py").write_text(source + "\n\ndef register():\n    pass\n")
    (place / "sitecustomize.py").write_text(site)
    info = place / "interfering-1.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: interfering\nVersion: 1\n")
    entry = "[vllm.general_plugins]\ninterfering = interfering:register\n"
    (info / "entry_points.txt").write_text(entry)
    return place


def _write_policy(rings: Path, policy: str, over: threading.Event) -> None:
    while policy and not over.is_set():
        for path in rings.glob("*.ring"):
            reader = RingReader.open(path)
            reader.control_write(policy)
            reader.close()
            return
        time.sleep(0.05)
