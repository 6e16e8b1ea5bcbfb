"""Made traffic with known truth: rounds of a batch, and the tables that a sidecar makes of them.

Written without the sidecar's own transposer, so that what is stored can be compared with what
was meant, sequence by sequence.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from math import ceil, log
from typing import Any

import pyarrow as pa

from specscope_agent import telemetry_pb2 as wire
from specscope_agent.loss import rows_table

CLASSES = ("prose", "code", "sql", "log")
KEEP = {"prose": 0.45, "code": 0.7, "sql": 0.85, "log": 0.9}  # chance that a proposal is kept


@dataclass(frozen=True)
class Sequence:
    """One request's part in one round."""

    request: int
    class_: str
    context: int
    k: int
    accepted: int
    emitted: int
    end: str


@dataclass(frozen=True)
class TrueRound:
    """One round, as it ran."""

    seq: int
    started_at: int
    wall_us: float
    policy: int | None
    pair: int | None
    arm: str | None
    sequences: list[Sequence]


@dataclass
class Traffic:
    """Cohorts of one class each, an arm a block, as the demonstration runs them."""

    seed: int = 1
    replica: str = "r0"
    boot: str = "b0"
    epoch: str = "e0"
    started_at: int = field(default_factory=lambda: time.time_ns() - 600 * 10**9)
    arms: tuple[tuple[str, int], ...] = (("k0", 0), ("k4", 4))
    pairs: int = 2
    requests: int = 3
    output: int = 24
    round_ns: int = 50_000_000
    policy: int | None = 7

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.rounds: list[TrueRound] = []
        self.requests_ended: list[dict[str, Any]] = []
        self._records: list[tuple[str, Any]] = []
        self._now, self._seq, self._next_request = self.started_at, 0, 1
        for pair in range(1, self.pairs + 1):
            class_ = CLASSES[(pair - 1) % len(CLASSES)]
            for arm, k in self.random.sample(self.arms, len(self.arms)):
                self._block(pair, arm, k, class_)

    def _block(self, pair: int, arm: str, k: int, class_: str) -> None:
        experiment = self.policy is not None
        running: dict[int, list[int]] = {}
        rows: dict[int, dict[str, Any]] = {}
        for place in range(self.requests):
            request = self._request(
                pair if experiment else None, arm if experiment else None, class_
            )
            request["content"] = 100 * pair + place  # the same requests in both arms
            running[request["request"]] = [request["prompt_tokens"], self.output]
            rows[request["request"]] = request
        while running:
            sequences = []
            for request, state in list(running.items()):
                sequence = self._sequence(request, class_, state, k)
                sequences.append(sequence)
                state[0] += sequence.emitted
                state[1] -= sequence.emitted
                if sequence.end != "none":
                    del running[request]
            wall = 1000.0 + 100.0 * k + 10.0 * len(sequences) + self.random.random()
            round_ = TrueRound(
                self._take(),
                self._now,
                float(pa.scalar(wall, pa.float32()).as_py()),
                self.policy,
                pair if experiment else None,
                arm if experiment else None,
                sequences,
            )
            self.rounds.append(round_)
            self._records.append(("round", round_))
            self._now += self.round_ns
            for sequence in sequences:
                if sequence.end != "none":
                    self._end(rows[sequence.request], sequence.end)

    def _sequence(self, request: int, class_: str, state: list[int], k: int) -> Sequence:
        accepted = 0
        while accepted < k and self.random.random() < KEEP[class_]:
            accepted += 1
        emitted, end = accepted + 1, "none"
        if self.random.random() < 0.02:
            emitted, end = self.random.randint(1, accepted + 1), "eos"
        if emitted >= state[1]:
            emitted, end = state[1], "length"
        return Sequence(request, class_, state[0], k, accepted, emitted, end)

    def _request(self, pair: int | None, arm: str | None, class_: str) -> dict[str, Any]:
        request = {
            "replica": self.replica,
            "boot": self.boot,
            "request": self.seed * 1_000_000 + self._next_request,
            "seq": self._take(),
            "class": class_,
            "admitted_at": self._now,
            "policy": self.policy,
            "pair": pair,
            "arm": arm,
            "prompt_tokens": self.random.choice([100, 2000, 5000]),
            "requested_output": self.output,
            "temperature": 0.0,
            "top_p": 1.0,
            "guided": False,
            "reason": "none",
        }
        self._next_request += 1
        self._records.append(("request", request))
        return request

    def _end(self, admitted: dict[str, Any], reason: str) -> None:
        mine = [s for r in self.rounds for s in r.sequences if s.request == admitted["request"]]
        ended = admitted | {
            "seq": self._take(),
            "ended_at": self._now,
            "last_pair": admitted["pair"],
            "output_tokens": sum(s.emitted for s in mine),
            "decode_ms": (self._now - admitted["admitted_at"]) / 1e6,
            "e2e_ms": (self._now - admitted["admitted_at"]) / 1e6,
            "ttft_ms": 50.0,
            "queue_ms": 1.0,
            "reason": reason,
            "digest": admitted["content"] * 31,
        }
        self.requests_ended.append(ended)
        self._records.append(("request", ended))

    def _take(self) -> int:
        self._seq += 1
        return self._seq - 1

    # --- what a sidecar makes of it ---

    def batches(self, records: int = 40) -> list[dict[str, pa.Table]]:
        """Tables of so many ring records each, in order; the first has the boot too."""
        return [
            self._tables(self._records[at : at + records], first=at == 0)
            for at in range(0, len(self._records), records)
        ]

    def messages(self, records: int = 40) -> list[Any]:
        """The same as numbered wire batches."""
        source = wire.Source(replica=self.replica, boot=self.boot)
        messages = []
        for number, tables in enumerate(self.batches(records), start=1):
            first = (number - 1) * records
            batch = wire.Batch(
                source=source,
                number=number,
                first_seq=first,
                next_seq=min(first + records, self._seq),
            )
            batch.tables.extend(
                wire.Table(name=name, arrow=stream(table)) for name, table in tables.items()
            )
            messages.append(batch)
        return messages

    def _tables(self, records: list[tuple[str, Any]], *, first: bool) -> dict[str, pa.Table]:
        rounds = [record for kind, record in records if kind == "round"]
        requests = [record for kind, record in records if kind == "request"]
        found = {
            "boot": [self.boot_row()] if first else [],
            "round": [self.round_row(round_) for round_ in rounds],
            "request_part": self._parts(rounds),
            "request": requests,
        }
        return {name: table(name, rows) for name, rows in found.items() if rows}

    def boot_row(self) -> dict[str, Any]:
        labels = ("host", "engine", "engine_version", "hook_version", "target", "method", "role")
        numbers = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
        return {
            "replica": self.replica,
            "boot": self.boot,
            "started_at": self.started_at,
            "epoch": self.epoch,
            "k_max": 8,
            "rank": 0,
            "gpu_uuids": [],
            **dict.fromkeys(labels, "x"),
            **dict.fromkeys(numbers, 1),
        }

    def round_row(self, round_: TrueRound) -> dict[str, Any]:
        by_class: dict[str, list[Sequence]] = defaultdict(list)
        for sequence in round_.sequences:
            by_class[sequence.class_].append(sequence)
        all_ = round_.sequences
        return {
            "replica": self.replica,
            "boot": self.boot,
            "seq": round_.seq,
            "started_at": round_.started_at,
            "policy": round_.policy,
            "pair": round_.pair,
            "arm": round_.arm,
            "block_age_ms": None if round_.pair is None else 0,
            "waiting": 0,
            "timing_source": "host",
            "wall_us": round_.wall_us,
            "draft_us": round_.wall_us / 4 if max(s.k for s in all_) else None,
            "verify_us": round_.wall_us / 2,
            "sample_us": round_.wall_us / 8,
            "prefill_tokens": 0,
            "padded_tokens": 0,
            "invalid": 0,
            "preempted": 0,
            "batch": len(all_),
            "k": max(s.k for s in all_),
            "n_q": sum(s.k + 1 for s in all_),
            "n_kv": sum(s.context for s in all_),
            "proposed": sum(s.k for s in all_),
            "accepted": sum(s.accepted for s in all_),
            "emitted": sum(s.emitted for s in all_),
            "classes": list(by_class),
            "class_sequences": [len(v) for v in by_class.values()],
            "class_proposed": [sum(s.k for s in v) for v in by_class.values()],
            "class_accepted": [sum(s.accepted for s in v) for v in by_class.values()],
            "class_emitted": [sum(s.emitted for s in v) for v in by_class.values()],
            "class_context": [sum(s.context for s in v) for v in by_class.values()],
        }

    def _parts(self, rounds: list[TrueRound]) -> list[dict[str, Any]]:
        mine: dict[tuple[Any, ...], list[tuple[TrueRound, Sequence]]] = defaultdict(list)
        for round_ in rounds:
            for sequence in round_.sequences:
                mine[sequence.request, round_.pair, round_.arm].append((round_, sequence))
        return [self._part(part) for part in mine.values()]

    def _part(self, part: list[tuple[TrueRound, Sequence]]) -> dict[str, Any]:
        (first, sequence), (last, ended) = part[0], part[-1]
        emitted = [s.emitted for _, s in part]
        gap_bin = ceil(log(self.round_ns / 1e6) / log(1.01 / 0.99))
        return {
            "replica": self.replica,
            "boot": self.boot,
            "request": sequence.request,
            "first_seq": first.seq,
            "last_seq": last.seq,
            "started_at": first.started_at,
            "class": sequence.class_,
            "policy": first.policy,
            "pair": first.pair,
            "arm": first.arm,
            "context": sequence.context,
            "rounds": len(part),
            "k": [s.k for _, s in part],
            "accepted": [s.accepted for _, s in part],
            "emitted": [] if emitted == [s.accepted + 1 for _, s in part] else emitted,
            "end": ended.end,
            "gap_bins": [gap_bin] if len(part) > 1 else [],
            "gap_counts": [len(part) - 1] if len(part) > 1 else [],
        }


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table of the stored schema; what a row does not say is unknown."""
    return rows_table(name, rows)


def stream(rows: pa.Table) -> bytes:
    """An Arrow IPC stream, compressed as sidecars do."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    result: bytes = sink.getvalue().to_pybytes()
    return result
