"""vLLM's environment, and what a run of it left on the ring."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from specscope_hook.layout import NAME_CLASS, Cursor
from specscope_hook.payload import decode
from specscope_hook.reader import RingReader
from specscope_hook.records import RingRequest, RingRound


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


def read_ring(rings: Path, run: Run | None = None) -> Run:
    """What the one ring in a directory holds; unchanged where there is none."""
    run = run or Run({}, "")
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
