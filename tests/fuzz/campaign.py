"""Hostile inputs for each of the doors that strangers have; what became of them goes to a file.

    python tests/fuzz/campaign.py [--doors ring,spool,…] [--out FILE] [--minutes M] [--processes N]

Work goes in chunks: a chunk's number seeds its inputs, and a line of FILE says that it was
withstood. Another run goes on where the file ends, so that counts add up over interrupted runs.
Ends with 1 if anything but a refusal came of an input, one took too long, or memory grew.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("", "agent")]

GROWTH_MIB = 96  # of a process between its second chunk of a door and its last
SLOWEST_S = 5.0  # of processor time for one input: a hang, on any machine
STUCK_S = 900.0  # for a chunk, which takes seconds
CHUNKS = {"ring": 10_000, "spool": 10_000, "policies": 10_000, "payloads": 2000, "statements": 2000}
"""Inputs in a chunk of each door."""
TARGETS = {
    "ring": 4_000_000,
    "spool": 2_000_000,
    "policies": 3_000_000,
    "payloads": 1_000_000,
    "statements": 500_000,
}
One = Callable[[random.Random], str]


def resident_mib() -> float:
    """Memory of this process. [MiB]"""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def door(name: str, folder: Path, draw: random.Random) -> One:
    """What tries one input of a door, and says how it ended; raises if it was not withstood."""
    if name in ("ring", "spool"):
        from ring_and_spool_fuzz import RingFuzz, SpoolFuzz

        fuzz = (RingFuzz if name == "ring" else SpoolFuzz)(folder, draw)
        return lambda draw: fuzz.one()
    if name == "payloads":
        from fuzz import payloads

        return lambda draw: payloads.check(payloads.damaged(draw))
    if name == "policies":
        from fuzz import policies

        return lambda draw: policies.check(policies.odd_policy(draw))
    from fuzz import statements

    engine = statements.Engine(folder)
    return lambda draw: engine.check(engine.statement(draw))


def attack(name: str, chunk: int, one: One, draw: random.Random) -> dict:
    """The inputs of a chunk; what to write down. Raises if one was not withstood."""
    ends: Counter[str] = Counter()
    slowest, began = 0.0, time.monotonic()
    for number in range(CHUNKS[name]):
        start = time.thread_time()
        try:
            ends[one(draw)] += 1
        except Exception as error:
            raise AssertionError(f"{name}: input {number} of chunk {chunk}: {error!r}") from error
        slowest = max(slowest, time.thread_time() - start)
    assert slowest < SLOWEST_S, f"{name}: an input of chunk {chunk} took {slowest:.1f} s"
    return {
        "door": name,
        "chunk": chunk,
        "inputs": CHUNKS[name],
        "ends": dict(ends),
        "slowest_s": round(slowest, 3),
        "seconds": round(time.monotonic() - began, 1),
    }


def work(name: str, first: int, step: int, done: set[int], out: Path, until: float) -> None:
    """Chunks first, first + step, … that are not done, until the target or the time is reached."""
    early, since = 0.0, 0
    with tempfile.TemporaryDirectory(dir=shared_memory()) as folder:
        one = None
        for chunk in range(first, TARGETS[name] // CHUNKS[name], step):
            if chunk in done or time.monotonic() > until:
                continue
            draw = random.Random(f"{name} {chunk}")
            if one is None or name in ("ring", "spool"):  # these draw from their own
                place = Path(folder, str(chunk))
                place.mkdir()
                one = door(name, place, draw)
            faulthandler.dump_traceback_later(STUCK_S, exit=True)
            line = attack(name, chunk, one, draw)
            faulthandler.cancel_dump_traceback_later()
            since += 1
            early = resident_mib() if since == 2 else early
            grown = resident_mib() - early if since > 2 else 0.0
            assert grown < GROWTH_MIB, f"{name}: memory grew by {grown:.0f} MiB"
            with out.open("a") as file:
                file.write(json.dumps({**line, "grown_mib": round(grown, 1)}) + "\n")


def shared_memory() -> str | None:
    """Where files cost no disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def written(out: Path) -> list[dict]:
    lines = out.read_text().splitlines() if out.exists() else []
    return [json.loads(line) for line in lines]


def summary(out: Path) -> dict:
    """Inputs, ends and the worst of each door, and inputs in all."""
    found: dict[str, dict] = defaultdict(
        lambda: {"inputs": 0, "ends": Counter(), "slowest_s": 0.0, "grown_mib": 0.0}
    )
    for line in written(out):
        of = found[line["door"]]
        of["inputs"] += line["inputs"]
        of["ends"].update(line["ends"])
        for worst in ("slowest_s", "grown_mib"):
            of[worst] = max(of[worst], line[worst])
    return {**found, "inputs": sum(of["inputs"] for of in found.values())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--doors", default=",".join(CHUNKS), help="which, with commas")
    parser.add_argument("--out", type=Path, default=Path("fuzz-counts.jsonl"))
    parser.add_argument("--minutes", type=float, default=1e6, help="start no chunk after so many")
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    until = time.monotonic() + 60 * args.minutes
    done = defaultdict(set)
    for line in written(args.out):
        done[line["door"]].add(line["chunk"])
    failed = 0
    context = multiprocessing.get_context("spawn")
    for name in args.doors.split(","):
        running = [
            context.Process(
                target=work, args=(name, i, args.processes, done[name], args.out, until)
            )
            for i in range(args.processes)
        ]
        for process in running:
            process.start()
        for process in running:
            process.join()
            failed += process.exitcode != 0
    sys.stdout.write(json.dumps({**summary(args.out), "failed": failed}) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
