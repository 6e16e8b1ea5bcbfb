"""vLLM's environment, and what a run of it left on the ring."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from specscope_hook.layout import NAME_CLASS, Cursor
from specscope_hook.payload import decode
from specscope_hook.reader import RingReader
from specscope_hook.ring_records import RingRequest, RingRound

CORES = sorted(os.sched_getaffinity(0))
# Starts in a third of the time; on one core, since threads that wait for each other crawl where
# the machine does other work too. Requests that are sent together are then planned together.
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": str(CORES[0])}


def environment(extra: dict[str, str]) -> dict[str, str]:
    """This process's, without settings of ours, for vLLM on a CPU without a network."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPECSCOPE_", "VLLM_"))}
    return kept | {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "GOMP_SPINCOUNT": "0",  # threads that share a core do not spin for each other
        **extra,
    }


def finish(command: Sequence[str], environ: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Run it and all that it starts to their end: its exit code, and what they printed.

    Raises TimeoutExpired; whatever happens nothing of it is left.
    """
    process = subprocess.Popen(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
        return process.returncode, said
    finally:
        kill_all_of(process)


def kill_all_of(process: subprocess.Popen[str]) -> None:
    """What is left of a process that leads a session, and of those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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


def read_ring(rings: Path, run: Run | None = None) -> Run:
    """What the one ring in a directory holds; unchanged where there is none."""
    run = run or Run({}, "")
    paths = list(rings.glob("*.ring"))
    if paths:
        (path,) = paths
        _read(path, run)
    return run


def read_rings(rings: Path) -> list[Run]:
    """What each of a directory's rings holds, by data-parallel rank."""
    runs = [_read(path, Run({}, "")) for path in rings.glob("*.ring")]
    return sorted(runs, key=lambda run: run.boot["rank"])


def _read(path: Path, run: Run) -> Run:
    reader = RingReader.open(path)
    raw, _, gaps = reader.pull(Cursor(), 1 << 40)
    assert gaps == []
    for record in map(decode, raw):
        (run.rounds if isinstance(record, RingRound) else run.requests).append(record)
    run.boot, run.classes = reader.boot, reader.names(NAME_CLASS)
    run.fault, run.ended = reader.fault_text, reader.ended
    return run
