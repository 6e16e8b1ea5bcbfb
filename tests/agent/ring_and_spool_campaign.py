"""Random faults between engine and service: afterwards every record is stored or counted as lost.

    python tests/agent/ring_and_spool_campaign.py [--episodes N] [--seconds S] [--seed X]

An episode runs two engines that record rounds, one sidecar and a service that keeps what it
acknowledged. Processes are killed and stopped, rings and spool files cut, flipped, deleted and
replaced, the network is cut, the spool's disk filled (if a small file system can be mounted) and
the sidecar's wall clock stepped. Then all heals, and each boot's records are added up.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from agent_support import Served  # noqa: E402
from ring_damage import DAMAGES  # noqa: E402

HEALING_S = 120.0
QUIET_S = 15.0  # in which a sidecar reads whatever can be read
UNWRITTEN = 200  # rounds that a killed engine may have had in its buffer: 20 ms of them, and slack
WRITER = """
import os, sys, time
sys.path[:0] = [sys.argv[4]]
from pathlib import Path
from rounds import one_round
from specscope_hook.attach import attach
from specscope_hook.boot import new_boot
from specscope_hook.settings import HookSettings
settings = HookSettings(Path(sys.argv[1]), sys.argv[2], ring_bytes=1 << 18)
boot = new_boot(settings, engine="e", engine_version="1", target="t")
ring, recorder = attach(settings, boot)
recorder.admitted(request=1, class_=0, prompt_tokens=1)
count = os.open(Path(sys.argv[3], boot.boot), os.O_RDWR | os.O_CREAT)
recorded, stop = 1, Path(sys.argv[3], "stop")
while not stop.exists():
    for _ in range(20):
        one_round(recorder)
        recorded += 1
        os.pwrite(count, recorded.to_bytes(8, "little"), 0)
        time.sleep(0.001)
assert recorder.on
recorder.close()
"""
# A wall clock that the campaign steps: the sidecar's Python reads the offset from a file.
STEPPED_CLOCK = """
import os, time
_time, _time_ns, _path = time.time, time.time_ns, os.environ.get("CAMPAIGN_CLOCK")
def _offset():
    try:
        with open(_path) as file:
            return int(file.read() or 0)
    except (OSError, ValueError, TypeError):
        return 0
if _path:
    time.time = lambda: _time() + _offset()
    time.time_ns = lambda: _time_ns() + _offset() * 10**9
"""


class Episode:
    """One run of it; `check` says what does not add up."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.rings, self.spool, self.counts, clock = (
            folder / name for name in ("rings", "spool", "counts", "clock")
        )
        for made in (self.rings, self.spool, self.counts, clock):
            made.mkdir()
        self.clock = clock / "offset"
        (clock / "sitecustomize.py").write_text(STEPPED_CLOCK)
        self.served = Served()
        self.mounted = _mount(self.spool)
        self.engines: dict[str, subprocess.Popen] = {}
        self.sidecar: subprocess.Popen | None = None
        self.hurt: set[str] = set()

    def run(self, seconds: float) -> None:
        """Faults for so long, then heal and wait until everything has arrived."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._keep_running()
            time.sleep(self.rng.uniform(0.05, 0.6))
            fault = self.rng.choice(self._faults())
            with contextlib.suppress(OSError):  # what it would hurt is gone already
                fault()
                self.faults[fault.__name__.strip("_")] += 1
        self._heal()

    def _faults(self):
        kinds = [
            self._kill_engine, self._kill_sidecar, self._stop_engine, self._stop_sidecar,
            self._end_sidecar, self._damage_ring, self._damage_ring, self._cut_spool,
            self._flip_spool, self._cut_network, self._step_clock,
        ]  # fmt: skip
        return [*kinds, self._fill_spool_disk] if self.mounted else kinds

    def _keep_running(self) -> None:
        for name in ("r0", "r1"):
            if name not in self.engines or self.engines[name].poll() is not None:
                run = [sys.executable, "-c", WRITER, str(self.rings), name]
                self.engines[name] = subprocess.Popen([*run, str(self.counts), str(HERE)])
        if self.sidecar is None or self.sidecar.poll() is not None:
            self._start_sidecar()

    def _start_sidecar(self) -> None:
        path = [str(self.clock.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = dict(os.environ) | {
            "SPECSCOPE_RINGS": str(self.rings),
            "SPECSCOPE_SPOOL": str(self.spool),
            "SPECSCOPE_SERVICE": self.served.address,
            "CAMPAIGN_CLOCK": str(self.clock),
            "PYTHONPATH": os.pathsep.join(path),
        }
        self.sidecar = subprocess.Popen(
            [sys.executable, "-m", "specscope", "agent"],
            env=environment,
            stderr=subprocess.DEVNULL,
        )

    def _engine(self) -> subprocess.Popen:
        return self.engines[self.rng.choice(("r0", "r1"))]

    def _kill_engine(self) -> None:
        self._engine().kill()

    def _kill_sidecar(self) -> None:
        self.sidecar.kill()
        self.sidecar.wait()

    def _end_sidecar(self) -> None:
        self.sidecar.terminate()

    def _stop_engine(self) -> None:
        self._stop(self._engine())

    def _stop_sidecar(self) -> None:
        self._stop(self.sidecar)

    def _stop(self, process: subprocess.Popen) -> None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.1, 1.5))
        process.send_signal(signal.SIGCONT)

    def _damage_ring(self) -> None:
        ring = self.rng.choice(sorted(self.rings.glob("*.ring")) or [None])
        if ring:
            self.hurt.add(_boot(ring))
            self.rng.choice(DAMAGES)(ring, self.rng)

    def _cut_spool(self) -> None:
        if batch := self._batch():
            os.truncate(batch, self.rng.randrange(batch.stat().st_size or 1))

    def _flip_spool(self) -> None:
        if batch := self._batch():
            with batch.open("r+b") as file:
                place = self.rng.randrange(batch.stat().st_size or 1)
                file.seek(place)
                byte = file.read(1) or b"\0"
                file.seek(place)
                file.write(bytes([byte[0] ^ 1 << self.rng.randrange(8)]))

    def _batch(self) -> Path | None:
        return self.rng.choice(sorted(self.spool.glob("*/*.batch")) or [None])

    def _cut_network(self) -> None:
        self.served.stop()
        time.sleep(self.rng.uniform(0.1, 1.5))
        self.served.start()

    def _step_clock(self) -> None:
        self.clock.write_text(str(self.rng.randrange(-360_000, 360_000)))

    def _fill_spool_disk(self) -> None:
        filler = self.spool / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        time.sleep(self.rng.uniform(0.5, 2.0))
        filler.unlink()

    def _heal(self) -> None:
        (self.counts / "stop").touch()
        self.clock.write_text("0")
        for engine in self.engines.values():
            assert engine.wait(60) in (0, -signal.SIGKILL), "an engine was killed by its hook"
        until, quiet = time.monotonic() + HEALING_S, time.monotonic() + QUIET_S
        while time.monotonic() < until:
            if self.sidecar.poll() is not None:
                self._start_sidecar()
            left = {_boot(ring) for ring in self.rings.glob("*.ring")}
            if any(self.spool.glob("*/*.batch")) or left - self.hurt:
                quiet = time.monotonic() + QUIET_S
            if not left or time.monotonic() > quiet:  # nobody mends a header of a dead engine
                return
            time.sleep(0.2)

    def close(self) -> None:
        for process in (*self.engines.values(), self.sidecar):
            if process and process.poll() is None:
                process.kill()
                process.wait()
        self.served.stop()
        if self.mounted:
            subprocess.run(["umount", str(self.spool)], check=False)

    def check(self) -> list[str]:
        """What is wrong, a line each."""
        left = [path.name for path in self.rings.glob("*.ring") if _boot(path) not in self.hurt]
        wrong = [f"{name} is still there" for name in left]
        rows = {name: self.served.service.rows(name) for name in ("round", "request", "loss")}
        for count in sorted(self.counts.iterdir()):
            if count.name != "stop":
                recorded = int.from_bytes(count.read_bytes(), "little")
                wrong += self._check_boot(count.name, recorded, rows)
        return wrong

    def _check_boot(self, boot: str, recorded: int, rows: dict[str, list[dict]]) -> list[str]:
        """Each record up to the known end is stored, or in exactly one counted loss."""
        seqs = [r["seq"] for name in ("round", "request") for r in rows[name] if r["boot"] == boot]
        losses = [row for row in rows["loss"] if row["boot"] == boot]
        tails = [row["first_seq"] for row in losses if row["reason"] == "tail_unknown"]
        stored, lost, twice = set(seqs), set(), 0
        counted = 0
        for row in losses:
            if row["reason"] == "tail_unknown" or row["table"] == "request_part":
                continue
            if row["table"] != "ring":
                counted += row["count"]
            elif row["count"] is not None:
                one = set(range(row["first_seq"], row["first_seq"] + row["count"]))
                twice += len(lost & one)
                lost |= one
        holes = self._holes(boot, {row["number"] for row in losses if row["count"] is None})
        known = min(tails) - 1 if tails else recorded
        if not tails and recorded + 1 in stored | lost:
            known += 1  # killed between a record and its count
        missing = set(range(1, known + 1)) - stored - lost - holes
        beyond = {seq for seq in stored | lost if seq > known}
        faults = {
            "stored twice": len(seqs) - len(stored),
            "in two losses": twice,
            "stored and counted lost": len(stored & lost),
            "missing, beside counted ones": len(missing) - counted,
            "more than there were": len(beyond),
            # A damaged ring whose writer is gone may have held any number, and nothing may be
            # known of its boot.
            "in a tail longer than the buffer": 0
            if boot in self.hurt or recorded - known <= UNWRITTEN
            else recorded - known,
        }
        if not stored and not losses and boot in self.hurt:
            return []
        what = ", ".join(f"{count} {name}" for name, count in faults.items() if count)
        says = (
            f"boot {boot}: recorded {recorded}, stored {len(stored)}, lost {len(lost)}, {counted}"
        )
        return [f"{says} counted, tail {tails}: {what}"] if what else []

    def _holes(self, boot: str, numbers: set[int | None]) -> set[int]:
        """Records of batches that the disk lost together with the knowledge of their beginning."""
        of = sorted(
            (number, batch.first_seq, batch.next_seq)
            for (source, number), batch in self.served.service.batches.items()
            if source.boot == boot
        )
        found: set[int] = set()
        for (_, _, after), (number, first, _) in zip([(0, 1, 1), *of], of, strict=False):
            if number in numbers:
                found |= set(range(after, first))
        return found

    def figures(self) -> str:
        recorded = sum(
            int.from_bytes(path.read_bytes(), "little")
            for path in self.counts.iterdir()
            if path.name != "stop"
        )
        losses: Counter[str] = Counter()
        for row in self.served.service.rows("loss"):
            losses[row["reason"]] += row["count"] or 1
        stored = len(self.served.service.rows("round")) + len(self.served.service.rows("request"))
        return (
            f"{self.faults.total()} faults {dict(self.faults)}, boots "
            f"{len(list(self.counts.iterdir())) - 1}, recorded {recorded}, stored {stored}, "
            f"losses {dict(losses)}"
        )


def _boot(ring: Path) -> str:
    return ring.stem.split("-")[-1]


def _mount(folder: Path) -> bool:
    """A file system of 2 MiB there, if we may mount one."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        return False
    run = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)]
    return subprocess.run(run, capture_output=True, check=False).returncode == 0


def episode(seed: int, seconds: float) -> tuple[list[str], str, int]:
    """What is wrong after one, its figures, and the number of faults."""
    with tempfile.TemporaryDirectory() as folder:
        run = Episode(Path(folder), seed)
        try:
            run.run(seconds)
            return run.check(), run.figures(), run.faults.total()
        finally:
            run.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    faults, failed = 0, 0
    for seed in range(args.seed, args.seed + args.episodes):
        wrong, figures, count = episode(seed, args.seconds)
        faults += count
        failed += bool(wrong)
        sys.stdout.write("\n  ".join([f"seed {seed}: {figures}", *wrong]) + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{args.episodes} episodes, {faults} faults, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
