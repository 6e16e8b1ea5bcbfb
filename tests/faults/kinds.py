"""The faults: what can be done to processes, network, disks, clocks and files of a pipeline."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from disks import Disk
from pipeline import Pipeline
from ports import own_port
from proxy import DOWN, UP, Proxy
from versions import earlier, path_of
from waiting import PATIENCE_S

HERE = Path(__file__).parent
HOUR_NS = 3600 * 10**9
# The engine of the store keeps merged parts for 8 minutes, some 100 kB each: a smaller store fills
# by itself.
STORE_BYTES, SPOOL_DISK_BYTES, FLOOR_BYTES = 384 << 20, 12 << 20, 8 << 20
# The small spool overflows when the service is away for a quarter of a minute.
SPOOL_BYTES = (2 << 20, 8 << 20)
FOR_EVER = 10**9
ENGINES = ("engine0", "engine1")
NAMES = ("service", "agent", *ENGINES)


def role_of(name: str) -> str:
    return "engine" if name.startswith("engine") else name


def boot_of(ring: Path) -> str:
    return ring.stem.rpartition("-")[2]


class Faulty(Pipeline):
    """A pipeline of real processes, a proxy and small disks, and all that is done to it."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        mutant: str = "",
        only: frozenset[str] = frozenset(),
        spool_bytes: int | None = None,
    ) -> None:
        """mutant: a fault of the product to plant; only: kinds of faults, all where empty;
        spool_bytes: of the sidecar, drawn if None
        """
        super().__init__(folder)
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.logs: list[Path] = []
        self.hurt: dict[str, list[str]] = defaultdict(list)
        """What was done to the ring of a boot."""
        self.store_disk = Disk(folder / "store-disk", STORE_BYTES)
        self.spool_disk = Disk(folder / "spool-disk", SPOOL_DISK_BYTES)
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
            "SPECSCOPE_SPOOL_BYTES": str(spool_bytes or self.random.choice(SPOOL_BYTES)),
            "SPECSCOPE_RING_BYTES": str(1 << 20),
        }
        self.mutant, self.only = mutant, only
        self.paused: dict[str, float] = {}
        self.pipes: list[Path] = []
        self.old: set[str] = set()
        """Processes that run an earlier version when they start next."""
        for name in NAMES:
            self._clock(name).write_bytes(bytes(8))
            history = earlier(role_of(name), folder.parent)
            if history and self._may("swap_version") and self.random.random() < 0.3:
                self.old.add(name)

    def _may(self, kind: str) -> bool:
        return not self.only or kind in self.only

    # --- processes ---

    def begin(self, name: str) -> None:
        """Start a process, unless it runs."""
        if self.alive(name):
            return
        command = {
            "service": ("specscope", "serve"),
            "agent": ("specscope", "agent"),
        }.get(name) or self._engine(name)
        kept, role = dict(self.environment), role_of(name)
        if self.mutant.startswith(role):
            self.environment["MUTANT"] = self.mutant
        if name in self.old:
            self.environment["PYTHONPATH"] = path_of(role, self.folder.parent)
        self.start(name, str(HERE / "stepped.py"), str(self._clock(name)), *command)
        self.environment = kept

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

    def kill(self, name: str) -> None:
        if name in self.running:
            self.paused.pop(name, None)
            super().kill(name)

    # --- faults ---

    def fault(self) -> None:
        """One fault of a kind that makes sense now."""
        while not (kinds := self._possible()):
            time.sleep(0.2)
            self.mend(all_=False)
        kind = self.random.choice(kinds)
        getattr(self, f"_{kind}")()
        self.counts[kind] += 1

    def _possible(self) -> list[str]:
        kinds = [kind for kind, possible in self._kinds().items() if possible()]
        return [kind for kind in kinds if self._may(kind)]

    def _kinds(self) -> dict[str, Callable[[], bool]]:
        ready = self.healthy()

        def always() -> bool:
            return True

        def serving() -> bool:
            return ready

        return {
            "kill_service": serving,
            "kill_agent": always,
            "kill_engine": always,
            "end_service": serving,
            "end_agent": always,
            "pause": always,
            "cut": always,
            "hold_up": lambda: not self.proxy.holding,
            "hold_down": lambda: not self.proxy.holding,
            "refuse": lambda: not self.proxy.refusing,
            "delay": lambda: not self.proxy.delay_s,
            # Earlier versions put no check on what they send.
            "flip": lambda: not self.old,
            "repeat": lambda: not self.old,
            "truncate": always,
            "replay": serving,
            "fill_store": lambda: self.store_disk.small and not self.store_disk.full,
            "fill_spool": lambda: self.spool_disk.small and not self.spool_disk.full,
            # Earlier versions count stored rows as lost if their clock refuses them.
            "step_service": lambda: "service" not in self.old,
            "step_agent": always,
            "step_engine": always,
            "damage_spool": always,
            "cut_spool": always,
            # Earlier versions take a ring that its writer makes anew for one that is gone.
            "damage_ring": lambda: "agent" not in self.old,
            "cut_ring": lambda: "agent" not in self.old,
            "remove_ring": lambda: "agent" not in self.old,
            "pipe": lambda: not self.pipes,
            "second_service": serving,
            "swap_version": lambda: self.counts["swap_version"] < 3,
            "upgrade_store": lambda: ready and self._rarely("upgrade_store"),
        }

    def _rarely(self, kind: str) -> bool:
        return self.counts[kind] < 1 + sum(self.counts.values()) // 50

    def _kill_service(self) -> None:
        self.kill("service")

    def _kill_agent(self) -> None:
        self.kill("agent")

    def _kill_engine(self) -> None:
        self.kill(self.random.choice(ENGINES))

    def _end_service(self) -> None:
        self.end("service")

    def _end_agent(self) -> None:
        self.end("agent")

    def end(self, name: str) -> None:
        if self.alive(name) and name not in self.paused:
            self.running[name].send_signal(signal.SIGTERM)

    def _pause(self) -> None:
        name = self.random.choice(NAMES)
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

    def _replay(self) -> None:
        self.proxy.replay()

    def _fill_store(self) -> None:
        self.store_disk.fill(self.random.choice([0, 20_000, 300_000, FLOOR_BYTES + (1 << 19)]))

    def _fill_spool(self) -> None:
        self.spool_disk.fill(self.random.choice([0, 5_000, 100_000]))

    def _step_service(self) -> None:
        self._step("service", 5)

    def _step_agent(self) -> None:
        self._step("agent", 100)

    def _step_engine(self) -> None:
        self._step(self.random.choice(ENGINES), 100)

    def _step(self, name: str, hours: float) -> None:
        offset = int(self.random.uniform(-hours, hours) * HOUR_NS) * self.random.choice([0, 1])
        self.set_clock(name, offset)

    def set_clock(self, name: str, offset: int) -> None:
        """In place: a process has the file mapped."""
        with self._clock(name).open("r+b") as file:
            file.write(struct.pack("<q", offset))

    def _damage_spool(self) -> None:
        self._damage(list(self.spool.glob("*/*.batch")), flip=True)

    def _cut_spool(self) -> None:
        self._damage(list(self.spool.glob("*/*.batch")), flip=False)

    def _damage_ring(self) -> None:
        self._hurt(self._damage(list(self.rings.glob("*.ring")), flip=True), "flipped")

    def _cut_ring(self) -> None:
        self._hurt(self._damage(list(self.rings.glob("*.ring")), flip=False), "cut")

    def _remove_ring(self) -> None:
        if rings := list(self.rings.glob("*.ring")):
            ring = self.random.choice(rings)
            ring.unlink(missing_ok=True)
            self._hurt(ring, "removed")

    def _hurt(self, ring: Path | None, how: str) -> None:
        if ring:
            self.hurt[boot_of(ring)].append(how)

    def _damage(self, files: list[Path], *, flip: bool) -> Path | None:
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
            return file
        return None

    def _pipe(self) -> None:
        """What has a reader wait for ever where a file should be."""
        lanes = [path for path in self.spool.glob("*-*") if path.is_dir()]
        places = [self.rings / "p.ring", self.rings / "p.ring.new"]
        places += [lane / "000000000000.batch" for lane in lanes]
        with contextlib.suppress(OSError):
            pipe = self.random.choice(places)
            os.mkfifo(pipe)
            self.pipes.append(pipe)

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

    def _swap_version(self) -> None:
        """Upgrade a process to this version, or roll it back to an earlier one."""
        name = self.random.choice(sorted(self.old) or NAMES)
        if earlier(role_of(name), self.folder.parent):
            self.old ^= {name}
            if name == "service":
                self.set_clock(name, 0)
            self.end(name) if self.random.random() < 0.5 else self.kill(name)

    def _upgrade_store(self) -> None:
        """A store of an earlier version comes under the service, on a full disk if it is full."""
        self.kill("service")
        full = self.store_disk.full
        self.store_disk.free()  # the engine waits for room to drop a column; the upgrade must not
        subprocess.run(
            [sys.executable, str(HERE / "upgrade.py"), str(self.store_disk.path / "store")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if full and self.store_disk.small:
            self.store_disk.fill(20_000)

    def mend(self, *, all_: bool) -> None:
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
        if all_ or self.random.random() < 0.3:
            while self.pipes:
                self.pipes.pop().unlink(missing_ok=True)
        # One may have come to own the store in place of a service that was killed.
        for name in [name for name in self.running if name.startswith("second")]:
            if all_ or self.random.random() < 0.3:
                self.kill(name)
        for name in NAMES:
            if all_ or self.random.random() < 0.7:
                self.begin(name)

    def close(self) -> None:
        for name in self.paused:
            if self.alive(name):
                self.running[name].send_signal(signal.SIGCONT)
        super().close()
        self.store_disk.close()
        self.spool_disk.close()
