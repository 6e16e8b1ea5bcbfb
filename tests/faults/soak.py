"""Steady traffic, and the memory of sidecar and service over time: `python soak.py --minutes 60`.

Memory is flat when the mean of the last third is within TOLERANCE of the mean of the third before.
What counts is anonymous memory. Resident memory, shown beside it, includes pages of files: the
engine's code, of which more is touched as time goes on, up to all of it.
Prints one JSON line a minute and one at the end; exit code 1 when memory is not flat.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "walk"), str(HERE)]

from pipeline import Pipeline  # noqa: E402

TOLERANCE = 0.05
EVERY_S = 5.0
WATCHED = ("agent", "service")


def memory_mib(pid: int, kind: str = "VmRSS") -> float:
    """Resident memory of a process, or a kind of it: RssAnon, RssFile."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def threads(pid: int) -> int:
    """How many a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--engines", type=int, default=3)
    args = parser.parse_args()
    seen: dict[str, list[float]] = {name: [] for name in WATCHED}
    anonymous: dict[str, list[float]] = {name: [] for name in WATCHED}
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        pipeline = Pipeline(Path(folder))
        try:
            pipeline.service()
            pipeline.agent()
            for i in range(args.engines):
                pipeline.traffic(f"engine{i}", 10**9, seed=i, pause_us=6000)
            deadline, minute = time.monotonic() + 60 * args.minutes, 0
            while time.monotonic() < deadline:
                time.sleep(EVERY_S)
                for name in WATCHED:
                    pid = pipeline.running[name].pid
                    seen[name].append(memory_mib(pid))
                    anonymous[name].append(memory_mib(pid, "RssAnon"))
                if len(seen["agent"]) >= (minute + 1) * 60 / EVERY_S:
                    minute += 1
                    say({
                        "minute": minute,
                        **{f"{name}_mib": round(seen[name][-1], 1) for name in WATCHED},
                        **{f"{name}_anonymous": round(anonymous[name][-1], 1) for name in WATCHED},
                        **{
                            f"{name}_threads": threads(pipeline.running[name].pid)
                            for name in WATCHED
                        },
                        **{
                            f"{name}_cpu_s": round(cpu_s(pipeline.running[name].pid), 1)
                            for name in WATCHED
                        },
                    })  # fmt: skip
        finally:
            pipeline.close()
    growth = {name: grown(values) for name, values in anonymous.items()}
    flat = all(abs(value) <= TOLERANCE for value in growth.values())
    say({
        "growth": growth,
        "mib_per_minute": {name: slope(values) for name, values in anonymous.items()},
        "resident_mib_per_minute": {name: slope(values) for name, values in seen.items()},
        "flat": flat,
        "tolerance": TOLERANCE,
    })  # fmt: skip
    return not flat


def grown(values: list[float]) -> float:
    """Mean of the last third over the mean of the third before, less 1."""
    third = len(values) // 3
    before, last = statistics.mean(values[third : 2 * third]), statistics.mean(values[-third:])
    return round(last / before - 1, 4)


def slope(values: list[float]) -> float:
    """Of the least-squares line through the last two thirds. [MiB a minute]"""
    settled = values[len(values) // 3 :]
    minutes = [i * EVERY_S / 60 for i in range(len(settled))]
    return round(statistics.linear_regression(minutes, settled).slope, 3)


def say(answer: dict) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
