"""Random faults in the whole pipeline, then a recount: `python campaign.py --faults 1000`.

Real processes: two engines without a model, a sidecar, the service; a proxy between the last two;
small disks of their own for store and spool where this user may mount. A seed decides which
fault comes when. After each episode everything is healed, drained, stopped and recounted by
`check.py`, which shares no code with the product. Prints JSON lines, the last one the sum; exit
code 1 for a violation.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "walk"), str(HERE)]

from pipeline import Pipeline  # noqa: E402
from ports import own_port  # noqa: E402
from proxy import DOWN, UP, Proxy  # noqa: E402
from waiting import PATIENCE_S  # noqa: E402

HOUR_NS = 3600 * 10**9
# The engine keeps merged parts for 8 minutes, some 100 kB each: a smaller store fills by itself.
STORE_BYTES, SPOOL_BYTES, FLOOR_BYTES = 384 << 20, 12 << 20, 8 << 20
FOR_EVER = 10**9
ENGINES = 2


class Disk:
    """A small disk, or a folder where this user may not mount."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.filler = path, path / "filler"
        path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
        self.small = subprocess.run(mount, capture_output=True).returncode == 0

    def fill(self, leave: int) -> None:
        self.free()
        with contextlib.suppress(OSError):
            descriptor, size = os.open(self.filler, os.O_CREAT | os.O_WRONLY), 0
            with contextlib.suppress(OSError):
                while True:
                    size += os.write(descriptor, bytes(1 << 16))
            os.ftruncate(descriptor, max(0, size - leave))
            os.close(descriptor)

    def free(self) -> None:
        self.filler.unlink(missing_ok=True)

    def close(self) -> None:
        if self.small:
            subprocess.run(["umount", "-l", str(self.path)], check=False)


class Episode(Pipeline):
    """One pipeline, its faults, and its recount."""

    def __init__(
        self, folder: Path, seed: int, *, mutant: str = "", only: frozenset[str] = frozenset()
    ) -> None:
        """mutant: a fault of the product to plant; only: kinds of faults, all where empty"""
        super().__init__(folder)
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.logs: list[Path] = []
        self.violations: list[str] = []
        self.store_disk = Disk(folder / "store-disk", STORE_BYTES)
        self.spool_disk = Disk(folder / "spool-disk", SPOOL_BYTES)
        self.store = f"chdb://{self.store_disk.path / 'store'}"
        self.spool = self.spool_disk.path / "spool"
        self.spool.mkdir()
        service, proxied = own_port(), own_port()
        self.proxy = Proxy(proxied, service, seed)
        self.environment |= {
            "SPECSCOPE_STORE": self.store,
            "SPECSCOPE_STORE_MIN_FREE_BYTES": str(FLOOR_BYTES),
            "SPECSCOPE_LISTEN": f"127.0.0.1:{service}",
            "SPECSCOPE_SERVICE": f"127.0.0.1:{proxied}",
            "SPECSCOPE_SPOOL": str(self.spool),
            "SPECSCOPE_SPOOL_BYTES": str(8 << 20),
            "SPECSCOPE_RING_BYTES": str(1 << 20),
        }
        self.mutant, self.only = mutant, only
        self.paused: dict[str, float] = {}
        for name in ("service", "agent", *self.engines):
            self._clock(name).write_bytes(bytes(8))

    @property
    def engines(self) -> list[str]:
        return [f"engine{i}" for i in range(ENGINES)]

    # --- processes ---

    def begin(self, name: str) -> None:
        """Start a process, unless it runs."""
        process = self.running.get(name)
        if process and process.poll() is None:
            return
        command = {
            "service": ("specscope", "serve"),
            "agent": ("specscope", "agent"),
        }.get(name) or self._engine(name)
        self.environment["MUTANT"] = self.mutant if name == "service" else ""
        self.start(name, str(HERE / "stepped.py"), str(self._clock(name)), *command)

    def _engine(self, name: str) -> tuple[str, ...]:
        log = self.folder / f"{name}-{len(self.logs)}.jsonl"
        self.logs.append(log)
        self.environment["SPECSCOPE_REPLICA"] = name
        seed = str(self.random.randrange(1 << 30))
        return (str(HERE.parent / "walk" / "traffic.py"), str(FOR_EVER), seed, "4000", str(log))

    def _clock(self, name: str) -> Path:
        return self.folder / f"{name}.clock"

    def alive(self, name: str) -> bool:
        process = self.running.get(name)
        return process is not None and process.poll() is None

    # --- faults ---

    def kill(self, name: str) -> None:
        if name in self.running:
            self.paused.pop(name, None)
            super().kill(name)

    def fault(self) -> None:
        """One fault of a kind that makes sense now."""
        while not (kinds := self._possible()):
            time.sleep(0.2)
            self._mend(all_=False)
        kind = self.random.choice(kinds)
        getattr(self, f"_{kind}")()
        self.counts[kind] += 1

    def _possible(self) -> list[str]:
        kinds = [kind for kind, possible in self._kinds().items() if possible]
        return [kind for kind in kinds if not self.only or kind in self.only]

    def _kinds(self) -> dict[str, bool]:
        ready = self.healthy()
        small = self.store_disk.small
        return {
            "kill_service": ready,
            "kill_agent": True,
            "kill_engine": True,
            "end_service": ready,
            "end_agent": True,
            "pause": True,
            "cut": True,
            "hold_up": not self.proxy.holding,
            "hold_down": not self.proxy.holding,
            "refuse": not self.proxy.refusing,
            "delay": not self.proxy.delay_s,
            "flip": True,
            "repeat": True,
            "truncate": True,
            "fill_store": small and not self.store_disk.filler.exists(),
            "fill_spool": small and not self.spool_disk.filler.exists(),
            "step_service": True,
            "step_agent": True,
            "step_engine": True,
            "damage_spool": True,
            "cut_spool": True,
            "damage_ring": True,
            "cut_ring": True,
            "remove_ring": True,
            "second_service": ready,
            "upgrade": ready and self.counts["upgrade"] < 1 + sum(self.counts.values()) // 50,
        }

    def _kill_service(self) -> None:
        self.kill("service")

    def _kill_agent(self) -> None:
        self.kill("agent")

    def _kill_engine(self) -> None:
        self.kill(self.random.choice(self.engines))

    def _end_service(self) -> None:
        self._end("service")

    def _end_agent(self) -> None:
        self._end("agent")

    def _end(self, name: str) -> None:
        if self.alive(name) and name not in self.paused:
            self.running[name].send_signal(signal.SIGTERM)

    def _pause(self) -> None:
        name = self.random.choice(["service", "agent", *self.engines])
        if self.alive(name):
            self.running[name].send_signal(signal.SIGSTOP)
            self.paused[name] = time.monotonic() + self.random.uniform(0.2, 3)

    def _cut(self) -> None:
        self.proxy.cut()

    def _hold_up(self) -> None:
        self.proxy.holding = {UP}

    def _hold_down(self) -> None:
        self.proxy.holding = {DOWN}

    def _refuse(self) -> None:
        self.proxy.refusing = True
        self.proxy.cut()

    def _delay(self) -> None:
        self.proxy.delay_s = self.random.uniform(0.01, 0.3)

    def _flip(self) -> None:
        self.proxy.damage(self.random.choice([UP, DOWN]), "flip")

    def _repeat(self) -> None:
        self.proxy.damage(self.random.choice([UP, DOWN]), "repeat")

    def _truncate(self) -> None:
        self.proxy.damage(self.random.choice([UP, DOWN]), "truncate")

    def _fill_store(self) -> None:
        self.store_disk.fill(self.random.choice([0, 20_000, 300_000, FLOOR_BYTES + (1 << 19)]))

    def _fill_spool(self) -> None:
        self.spool_disk.fill(self.random.choice([0, 5_000, 100_000]))

    def _step_service(self) -> None:
        self._step("service", 5)

    def _step_agent(self) -> None:
        self._step("agent", 100)

    def _step_engine(self) -> None:
        self._step(self.random.choice(self.engines), 100)

    def _step(self, name: str, hours: float) -> None:
        offset = int(self.random.uniform(-hours, hours) * HOUR_NS) * self.random.choice([0, 1])
        self._set(name, offset)

    def _set(self, name: str, offset: int) -> None:
        """In place: a process has the file mapped."""
        with self._clock(name).open("r+b") as file:
            file.write(struct.pack("<q", offset))

    def _damage_spool(self) -> None:
        self._damage(list(self.spool.glob("*/*.batch")), flip=True)

    def _cut_spool(self) -> None:
        self._damage(list(self.spool.glob("*/*.batch")), flip=False)

    def _damage_ring(self) -> None:
        self._damage(list(self.rings.glob("*.ring")), flip=True)

    def _cut_ring(self) -> None:
        self._damage(list(self.rings.glob("*.ring")), flip=False)

    def _remove_ring(self) -> None:
        for ring in self.random.sample(list(self.rings.glob("*.ring")), k=1):
            ring.unlink(missing_ok=True)

    def _damage(self, files: list[Path], *, flip: bool) -> None:
        with contextlib.suppress(OSError, IndexError, ValueError):
            file = self.random.choice(files)
            size = file.stat().st_size
            place = self.random.randrange(size)
            with file.open("r+b") as stream:
                if not flip:
                    stream.truncate(place)
                else:
                    stream.seek(place)
                    (byte,) = stream.read(1)
                    stream.seek(place)
                    stream.write(bytes([byte ^ 1 << self.random.randrange(8)]))

    def _second_service(self) -> None:
        kept = self.environment | {
            "SPECSCOPE_LISTEN": "127.0.0.1:0",
            "SPECSCOPE_HTTP": "127.0.0.1:0",
        }
        second = subprocess.Popen(
            [sys.executable, "-m", "specscope", "serve"],
            env=kept, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.running[f"second{self.counts['second_service']}"] = second

    def _upgrade(self) -> None:
        self.kill("service")
        full = self.store_disk.filler.exists()
        self.store_disk.free()  # the engine waits for room to drop a column; the upgrade must not
        subprocess.run(
            [sys.executable, str(HERE / "upgrade.py"), str(self.store_disk.path / "store")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if full and self.store_disk.small:
            self.store_disk.fill(20_000)

    # --- the episode ---

    def run(self, faults: int) -> None:
        for name in ("service", "agent", *self.engines):
            self.begin(name)
        self._wait(self.healthy, "the service never started")
        for _ in range(faults):
            time.sleep(self.random.expovariate(1 / 0.35))
            self.fault()
            self._mend(all_=False)
        self.settle()

    def _mend(self, *, all_: bool) -> None:
        """Let paused processes go on, start what ended, and heal most of what is broken."""
        for name, until in list(self.paused.items()):
            if all_ or time.monotonic() > until:
                if self.alive(name):
                    self.running[name].send_signal(signal.SIGCONT)
                del self.paused[name]
        if all_ or self.random.random() < 0.3:
            self.proxy.heal()
        if all_ or self.random.random() < 0.25:
            self.store_disk.free()
        if all_ or self.random.random() < 0.25:
            self.spool_disk.free()
        # One may have come to own the store in place of a service that was killed.
        for name in [name for name in self.running if name.startswith("second")]:
            if all_ or self.random.random() < 0.3:
                self.kill(name)
        for name in ("service", "agent", *self.engines):
            if all_ or self.random.random() < 0.7:
                self.begin(name)

    def settle(self) -> None:
        """Heal everything, end the engines, drain, stop, recount."""
        for name in ("service", "agent", *self.engines):
            self._set(name, 0)
        self._mend(all_=True)
        self._wait(self.healthy, "the service does not start any more")
        for name in self.engines:
            self._end(name)
        self._wait(lambda: not any(map(self.alive, self.engines)), "an engine does not end")
        self._wait(self._drained, "the sidecar does not drain")
        for name in ("agent", "service"):
            self._end(name)
            self._wait(lambda name=name: not self.alive(name), f"the {name} does not end")
        subprocess.run(
            [sys.executable, "-c", "import sys; from specscope.store.connection import Store;"
             "from specscope.store.roll import Roller;"
             "store = Store.open(sys.argv[1], min_free=0); roller = Roller(store);"
             "roller.recover(); roller.tick(everything=True); store.close()", self.store],
            check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        checked = subprocess.run(
            [sys.executable, str(HERE / "check.py"), str(self.store_disk.path / "store"),
             *(str(log) for log in self.logs if log.exists())],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if checked.returncode:
            self.violations.append(f"cannot be checked: {checked.stderr[-500:]}")
            return
        result = json.loads(checked.stdout)
        self.violations += result.pop("violations")
        self.counts.update({f"checked {name}": count for name, count in result.items()})

    def _drained(self) -> bool:
        return not any(self.spool.glob("*/*.batch")) and not any(self.rings.glob("*.ring"))

    def _wait(self, condition, otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                self.violations.append(otherwise)
                raise TimeoutError(otherwise)
            for name in ("service", "agent"):
                if "start" in otherwise or "drain" in otherwise:
                    self.begin(name)
            time.sleep(0.2)

    def close(self) -> None:
        for name in self.paused:
            if self.alive(name):
                self.running[name].send_signal(signal.SIGCONT)
        super().close()
        self.store_disk.close()
        self.spool_disk.close()


def episode(
    seed: int,
    faults: int,
    *,
    mutant: str = "",
    only: frozenset[str] = frozenset(),
    keep: bool = False,
) -> Episode:
    """Run one, and leave its folder where there was a violation and `keep`."""
    folder = Path(tempfile.mkdtemp(prefix=f"faults-{seed}-"))
    one = Episode(folder, seed, mutant=mutant, only=only)
    try:
        one.run(faults)
    except TimeoutError:
        pass
    finally:
        if one.violations and keep:
            shutil.copytree(one.store_disk.path, folder / "kept", symlinks=True, dirs_exist_ok=True)
        one.close()
        if not (one.violations and keep):
            shutil.rmtree(folder, ignore_errors=True)
    return one


def say(answer: dict) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--each", type=int, default=60, help="faults in an episode")
    parser.add_argument("--mutant", default="", help="plant a fault of the product; see mutants.py")
    args = parser.parse_args()
    totals: Counter[str] = Counter()
    violations: dict[str, list[str]] = {}
    left, seed = args.faults, args.seed
    while left > 0:
        one = episode(seed, min(left, args.each), mutant=args.mutant, keep=True)
        totals.update(one.counts)
        if one.violations:
            violations[str(seed)] = [*one.violations[:8], f"kept in {one.folder}"]
        done = {name: n for name, n in one.counts.items() if name.startswith("checked")}
        kinds = {name: n for name, n in one.counts.items() if not name.startswith("checked")}
        say({"seed": seed, **done, "by_kind": kinds, "violations": one.violations[:8]})
        left, seed = left - args.each, seed + 1
    kinds = {name: n for name, n in totals.items() if not name.startswith("checked")}
    checked = {name: n for name, n in totals.items() if name.startswith("checked")}
    say(
        {"faults": sum(kinds.values()), "by_kind": kinds, "checked": checked,
         "violations": violations}
    )  # fmt: skip
    return bool(violations)


if __name__ == "__main__":
    sys.exit(main())
