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


def turn_costs(batch: int, rounds: int, turns: int) -> list[float]:
    """CPU seconds of each turn of the sidecar's loop that finds so many rounds in the ring."""
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
        costs = []
        for _ in range(1 + turns):
            fill(recorder, ids, rounds, rng)
            began = time.process_time()
            agent.tick()
            costs.append(time.process_time() - began)
        lost = ring.dropped
        agent.close()
        ring.close()
    if lost:
        raise SystemExit("the ring was too small for the bench")
    return costs[1:]  # the first turn also opens the ring


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results: dict[str, float] = {}
    for batch, rounds in ((1, 30_000), (64, 4_000)):
        costs = turn_costs(batch, rounds, 8)
        # The least disturbed turn is what the code costs; the median, what it cost here.
        results[f"rounds/s at batch {batch}"] = rounds / min(costs)
        results[f"rounds/s at batch {batch}, median"] = rounds / float(np.median(costs))
    steady = turn_costs(256, int(200 * PERIOD_S), 50)
    results["share of a core at 200 rounds/s of 256"] = min(steady) / PERIOD_S
    results["share of a core at 200 rounds/s of 256, median"] = float(np.median(steady)) / PERIOD_S
    results["resident MB, writer included"] = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    )
    if args.json:
        print(json.dumps(results))
        return
    for name, value in results.items():
        print(f"{name:50} {value:12.4g}")


if __name__ == "__main__":
    main()
