"""Real vLLM, in its own environment: VLLM_PYTHON names its interpreter, see environment.sh."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "hook"))

from specscope_hook.layout import NAME_CLASS, Cursor  # noqa: E402
from specscope_hook.payload import decode  # noqa: E402
from specscope_hook.reader import RingReader  # noqa: E402
from specscope_hook.records import RingRequest, RingRound  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "vllm: real vLLM in its own environment; minutes")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.timeout(900))


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
    run = [vllm_python, str(HERE / "vllm_models.py"), str(directory)]
    subprocess.run(run, check=True, env=environment({}), capture_output=True, timeout=300)
    return directory


def environment(extra: dict[str, str]) -> dict[str, str]:
    """This process's, without settings of ours, for vLLM on a CPU without a network."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPECSCOPE_", "VLLM_"))}
    return kept | {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **extra,
    }


@dataclass
class Run:
    """What vLLM said of itself, what it printed, and what our ring holds."""

    result: dict
    log: str
    boot: dict = field(default_factory=dict)
    rounds: list[RingRound] = field(default_factory=list)
    requests: list[RingRequest] = field(default_factory=list)
    classes: dict[int, str] = field(default_factory=dict)
    fault: str = ""
    ended: bool = False

    @property
    def lines(self) -> list[str]:
        return [line for line in self.log.splitlines() if "specscope" in line]

    @property
    def ends(self) -> list[RingRequest]:
        return [request for request in self.requests if request.ended_at]

    def total(self, name: str) -> int:
        return sum(sum(getattr(round_, name)) for round_ in self.rounds)


@pytest.fixture
def run(vllm_python, models, tmp_path):
    """Runs a job of vllm_run.py with the hook on, and reads the ring afterwards.

    plugin: source of another vLLM plug-in, loaded beside ours, for faults.
    policy: written to the control page as soon as the ring is there.
    """

    def go(
        job: dict,
        *,
        settings: dict[str, str] | None = None,
        plugin: str = "",
        policy: str = "",
    ) -> Run:
        rings = tmp_path / "rings"
        rings.mkdir()
        extra = {"SPECSCOPE_RINGS": str(rings), "SPECSCOPE_REPLICA": "r0"} | (settings or {})
        if plugin:
            extra["PYTHONPATH"] = str(_plugin(tmp_path, plugin))
        job = {"model": str(models / "target")} | job
        (tmp_path / "job.json").write_text(json.dumps(job))
        out = tmp_path / "out.json"
        command = [vllm_python, str(HERE / "vllm_run.py"), str(tmp_path / "job.json"), str(out)]
        over = threading.Event()
        writer = threading.Thread(target=_write_policy, args=(rings, policy, over))
        writer.start()
        try:
            done = subprocess.run(
                command,
                env=environment(extra),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=800,
                check=False,
            )
        finally:
            over.set()
            writer.join()
        assert done.returncode == 0, done.stdout[-4000:]
        return _read(Run(json.loads(out.read_text()), done.stdout), rings)

    return go


def _plugin(directory: Path, source: str) -> Path:
    """Another distribution with a general plug-in, made of two files."""
    place = directory / "plugin"
    (place / "interfering-1.dist-info").mkdir(parents=True)
    (place / "interfering.py").write_text(source + "\n\ndef register():\n    pass\n")
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


def _read(run: Run, rings: Path) -> Run:
    paths = list(rings.glob("*.ring"))
    if not paths:
        return run
    (path,) = paths
    reader = RingReader.open(path)
    raw, _, gaps = reader.pull(Cursor(), 1 << 40)
    assert gaps == []
    for record in map(decode, raw):
        (run.rounds if isinstance(record, RingRound) else run.requests).append(record)
    run.boot, run.classes = reader.boot, reader.names(NAME_CLASS)
    run.fault, run.ended = reader.fault_text, reader.ended
    return run
