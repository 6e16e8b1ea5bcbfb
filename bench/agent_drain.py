"""Ring to spool on one core: rounds per second of CPU time, and the cost of a steady load.

    python bench/agent_drain.py [--json]

Budgets: at least 100 000 rounds/s at batch 1 and 20 000 at batch 64; under 1 % of a core at
200 rounds/s and batch 256; under 250 MB resident. CPU time of the reading side alone, so
that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from specscope_agent.agent import PERIOD_S, Agent
from specscope_agent.settings import AgentSettings
from specscope_hook.boot import new_boot
from specscope_hook.recorder import Recorder
from specscope_hook.ring import Ring
from specscope_hook.settings import HookSettings

RING_BYTES = 64 << 20


def fill(recorder: Recorder, ids: list[int], rounds: int, rng: np.random.Generator) -> None:
    """Rounds of one batch with k up to 4, as a steady engine writes them."""
    batch = len(ids)
    classes = [i % 4 for i in range(batch)]
    now = time.time_ns()
    for index in range(rounds):
        k = rng.integers(0, 5, batch)
        accepted = (rng.random(batch) * (k + 1)).astype(int)
        recorder.round(
            started_at=now + index * 5_000_000,
            wall_us=5000.0 + rng.random() * 300,
            draft_us=1000.0,
            verify_us=3500.0,
            requests=ids,
            contexts=[index + i for i in range(batch)],
            classes=classes,
            k=k.tolist(),
            accepted=accepted.tolist(),
            emitted=(accepted + 1).tolist(),
            ends=[0] * batch,
        )


def measure(batch: int, rounds: int, per_drain: int | None = None) -> dict[str, float]:
    """CPU seconds of draining, by round; per_drain: rounds that lie in the ring at each turn."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        rings = Path(folder, "rings")
        rings.mkdir()
        settings = HookSettings(rings=rings, replica="bench")
        boot = new_boot(settings, engine="bench", engine_version="1", target="t", k_max=4)
        ring = Ring.create(rings / "bench.ring", boot, RING_BYTES)
        recorder = Recorder(ring, salt=b"bench")
        for label in ("sql", "prose", "python", "json"):
            recorder.class_id(label)
        ids = [recorder.request_hash(str(i)) for i in range(batch)]
        agent = Agent(AgentSettings(rings=rings, spool=Path(folder, "spool"), spool_bytes=1 << 40))
        fill(recorder, ids, 8, rng)
        agent.tick()
        spent, done = 0.0, 0
        while done < rounds:
            step = min(per_drain or rounds, rounds - done)
            fill(recorder, ids, step, rng)
            began = time.process_time()
            agent.tick()
            spent += time.process_time() - began
            done += step
        lost = ring.dropped
        waiting = agent.spool.disk_bytes
        agent.close()
        ring.close()
    assert lost == 0, "the ring was too small for the bench"
    return {
        "cpu_s": spent,
        "rounds_per_cpu_s": rounds / spent,
        "disk_bytes_round": waiting / rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = {
        "batch 1": measure(1, 200_000),
        "batch 64": measure(64, 20_000),
        "batch 256, 200 rounds/s": measure(256, 4_000, int(200 * PERIOD_S)),
    }
    steady = results["batch 256, 200 rounds/s"]
    steady["share_of_a_core"] = 200 / steady["rounds_per_cpu_s"]
    resident_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if args.json:
        print(json.dumps({**results, "resident_mb": resident_mb}))
        return
    for name, values in results.items():
        print(name, *(f"{key}={value:.6g}" for key, value in values.items()))
    print(f"resident {resident_mb:.0f} MB, this bench's writer included")


if __name__ == "__main__":
    main()
