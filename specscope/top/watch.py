"""Poll the rings of a folder for their newest rounds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specscope.top.experiment import RunningExperiment, experiment_of
from specscope.top.figures import Figures, figures
from specscope.top.gpus import GpuNow, Gpus
from specscope_hook.errors import CorruptRing, HookError
from specscope_hook.layout import NAME_ARM, NAME_CLASS, ROUND
from specscope_hook.payload import decode
from specscope_hook.peek import RingPeek
from specscope_hook.ring_records import RingRound

MOST_ROUNDS = 5000  # of a replica; decoding more takes longer than a person waits for
AT_FIRST_BYTES = 8 << 20  # of the ring, at the first look


@dataclass(frozen=True, slots=True)
class Replica:
    """The current state of one ring.

    state: serving, ended (closed), gone (the process ended without closing the ring) or detached
    (the hook turned itself off; `fault` has the reason). quiet_s: seconds since the newest round,
    None before the first. dropped: records that a full ring has dropped since the start.
    experiment: the running experiment of its policy. devices: its devices; no_devices: the reason
    for none, empty on a CPU.
    """

    replica: str
    boot: str
    engine: str
    target: str
    state: str
    fault: str
    quiet_s: float | None
    dropped: int
    figures: Figures | None
    experiment: RunningExperiment | None = None
    devices: tuple[GpuNow, ...] = ()
    no_devices: str = ""


class Watch:
    """Read every ring of a folder without removing records."""

    def __init__(self, folder: Path, seconds: float, replica: str | None = None) -> None:
        """seconds: period before each replica's newest round. replica: read this one alone."""
        self._folder, self._window_ns, self._only = folder, int(seconds * 1e9), replica
        self._seen: dict[Path, _Seen] = {}
        self._gpus = Gpus()
        self.refused: dict[Path, str] = {}

    def look(self) -> list[Replica]:
        """The current state of every replica, by name. Raises OSError if the folder cannot be
        read."""
        found = {path for path in self._folder.iterdir() if path.suffix == ".ring"}
        for path in self._seen.keys() - found:
            self._seen.pop(path).ring.close()
        self.refused.clear()
        for path in sorted(found):
            try:
                if path in self._seen and self._seen[path].ring.replaced:
                    self._seen.pop(path).ring.close()
                if path not in self._seen:
                    self._seen[path] = _Seen(RingPeek.open(path))
                self._seen[path].look(self._window_ns)
            except HookError as error:
                self.refused[path] = str(error)
        # Where no engine says that it runs on a device, none is asked.
        wanted = any(seen.gpu_uuids for seen in self._seen.values())
        devices = {one.uuid: one for one in self._gpus.look()} if wanted else {}
        replicas = [seen.replica(devices, self._gpus.reason) for seen in self._seen.values()]
        chosen = [one for one in replicas if self._only in (None, one.replica)]
        return sorted(chosen, key=lambda one: (one.replica, one.boot))

    def close(self) -> None:
        """Close the rings and release the devices."""
        self._gpus.close()
        for seen in self._seen.values():
            seen.ring.close()
        self._seen.clear()


class _Seen:
    """One ring and the newest of its rounds."""

    def __init__(self, ring: RingPeek) -> None:
        self.ring = ring
        self._cursor = ring.newest(AT_FIRST_BYTES)
        self._rounds: deque[RingRound] = deque(maxlen=MOST_ROUNDS)

    def look(self, window_ns: int) -> None:
        records, self._cursor = self.ring.look(self._cursor)
        for record in [record for record in records if record.kind == ROUND][-MOST_ROUNDS:]:
            try:
                self._rounds.append(decode(record))  # type: ignore[arg-type]
            except CorruptRing:  # the sidecar counts it
                continue
        while self._rounds and self._rounds[0].started_at < self._rounds[-1].started_at - window_ns:
            self._rounds.popleft()

    def replica(self, devices: Mapping[str, GpuNow], no_devices: str) -> Replica:
        """The current state. devices: this machine's devices, by name; no_devices: the reason for
        none."""
        ring, boot = self.ring, self.ring.boot
        name, start = (str(boot.get(each, "")) for each in ("replica", "boot"))
        policy = ring.control_text
        own = tuple(devices[uuid] for uuid in self.gpu_uuids if uuid in devices)
        newest = self._rounds[-1] if self._rounds else None
        ended_at = newest.started_at + int(newest.wall_us * 1e3) if newest else None
        return Replica(
            replica=name,
            boot=start,
            engine=" ".join(str(boot.get(name) or "") for name in ("engine", "engine_version")),
            target=str(boot.get("target", "")),
            state=_state(ring),
            fault=ring.fault_text,
            quiet_s=None if ended_at is None else max(0.0, (time.time_ns() - ended_at) / 1e9),
            dropped=ring.dropped,
            figures=figures(self._rounds, ring.names(NAME_CLASS), ring.names(NAME_ARM)),
            experiment=experiment_of(policy, name, start, time.time_ns()),
            devices=own,
            no_devices="" if own or not self.gpu_uuids else no_devices or "not on this machine",
        )

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """Devices of the boot in NVML's spelling; PyTorch omits the prefix `GPU-`."""
        named = self.ring.boot.get("gpu_uuids")
        names = [str(name) for name in named] if isinstance(named, list) else []
        return tuple(name if name.startswith(("GPU-", "MIG-")) else f"GPU-{name}" for name in names)


def _state(ring: RingPeek) -> str:
    if ring.fault_text:
        return "detached"
    if ring.ended:
        return "ended"
    return "serving" if ring.writer_alive else "gone"
