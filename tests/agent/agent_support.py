"""What the sidecar's tests share: a boot, a writer of random traffic, a service that keeps all."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent import futures
from dataclasses import dataclass, field

import grpc
import numpy as np
import pyarrow as pa
from ports import own_port

from specscope_agent import telemetry_pb2 as wire
from specscope_agent.source import Source
from specscope_agent.telemetry_pb2_grpc import (
    TelemetryServicer,
    add_TelemetryServicer_to_server,
)
from specscope_agent.wire import decode
from specscope_hook.boot import new_boot
from specscope_hook.recorder import Recorder
from specscope_hook.records import Boot
from specscope_hook.ring import Ring
from specscope_hook.settings import HookSettings


def a_boot(replica: str = "r0", **known: object) -> Boot:
    settings = HookSettings(rings=None, replica=replica)
    card = {"parameters": 1_000_000, "bytes_per_weight": 2.0, "kv_bytes_per_token": 100}
    given = {"engine": "reference", "engine_version": "1", "target": "t", "k_max": 8, **card}
    return new_boot(settings, **{**given, **known})


def ring_at(folder, boot: Boot, capacity: int = 1 << 22) -> Ring:
    return Ring.create(folder / f"{boot.replica}-{boot.boot}.ring", boot, capacity)


@dataclass
class Traffic:
    """Random requests through rounds of random length, and the truth about them."""

    recorder: Recorder
    rng: np.random.Generator
    classes: tuple[str, ...] = ("sql", "prose")
    rounds: int = 0
    emitted: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    accepted: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    took_part: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    outputs: dict[int, int] = field(default_factory=dict)
    _running: dict[int, list] = field(default_factory=dict)
    _made: int = 0

    def admit(self) -> None:
        self._made += 1
        request = self.recorder.request_hash(f"request-{self._made}")
        class_ = self.recorder.class_id(self.classes[self._made % len(self.classes)])
        handle = self.recorder.admitted(request=request, class_=class_, prompt_tokens=20)
        self._running[request] = [handle, class_, 20]

    def round(self, batch: int, k_max: int = 4, started_at: int | None = None) -> None:
        while len(self._running) < batch:
            self.admit()
        requests = list(self._running)[:batch]
        k = self.rng.integers(0, k_max + 1, batch)
        accepted = (self.rng.random(batch) * (k + 1)).astype(int)
        ends = np.where(self.rng.random(batch) < 0.1, self.rng.integers(1, 5, batch), 0)
        short = (ends > 0) & (self.rng.random(batch) < 0.5)
        emitted = np.where(short, np.maximum(accepted, 1), accepted + 1)
        self.recorder.round(
            started_at=started_at or 1_790_000_000_000_000_000 + self.rounds * 10_000_000,
            wall_us=float(self.rng.integers(5_000, 20_000)),
            draft_us=1000.0,
            verify_us=3000.0,
            requests=requests,
            contexts=[self._running[r][2] for r in requests],
            classes=[self._running[r][1] for r in requests],
            k=k.tolist(),
            accepted=accepted.tolist(),
            emitted=emitted.tolist(),
            ends=ends.tolist(),
        )
        self.rounds += 1
        for i, request in enumerate(requests):
            self.emitted[request] += int(emitted[i])
            self.accepted[request] += int(accepted[i])
            self.took_part[request].append(self.rounds - 1)
            self._running[request][2] += int(emitted[i])
            if ends[i]:
                self._end(request, int(ends[i]))
        self.recorder.flush()

    def _end(self, request: int, reason: int) -> None:
        handle, _, _ = self._running.pop(request)
        self.outputs[request] = self.emitted[request]
        self.recorder.ended(handle, output_tokens=self.emitted[request], reason=reason)


class KeepingService(TelemetryServicer):
    """Takes batches as the contract says and keeps them all; its store is a dict."""

    def __init__(self) -> None:
        self.batches: dict[tuple[Source, int], wire.Batch] = {}
        self.received: list[tuple[Source, int]] = []
        self.hellos: list[wire.Hello] = []
        self.policy: wire.Policy | None = None
        self.acknowledge = threading.Event()
        self.acknowledge.set()

    def Publish(self, messages, context):  # noqa: N802
        for message in messages:
            if message.HasField("hello"):
                self.hellos.append(message.hello)
                yield wire.FromService(resume=self._resume(message.hello))
                if self.policy:
                    yield wire.FromService(policy=self.policy)
                continue
            batch = message.batch
            key = (Source(batch.source.replica, batch.source.boot), batch.number)
            self.received.append(key)
            if not self.acknowledge.is_set():
                continue
            self.batches.setdefault(key, batch)  # what it has it does not take again
            yield wire.FromService(ack=wire.Ack(source=batch.source, number=batch.number))

    def _resume(self, hello: wire.Hello) -> wire.Resume:
        positions = []
        for source in hello.sources:
            number, next_seq = 0, 1
            while last := self.batches.get((Source(source.replica, source.boot), number + 1)):
                number, next_seq = number + 1, last.next_seq
            positions.append(wire.Position(source=source, number=number, next_seq=next_seq))
        return wire.Resume(positions=positions)

    def rows(self, name: str) -> list[dict]:
        tables = [
            decode(table.arrow)
            for _, batch in sorted(self.batches.items())
            for table in batch.tables
            if table.name == name
        ]
        return pa.concat_tables(tables).to_pylist() if tables else []


class Served:
    """A KeepingService on a port, which can be stopped and started again."""

    def __init__(self) -> None:
        self.service = KeepingService()
        self.port = own_port()
        self.start()

    def start(self) -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        add_TelemetryServicer_to_server(self.service, self._server)
        assert self._server.add_insecure_port(self.address) == self.port
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"
