"""Raw rows of made traffic, with every corner that the report's figures must survive.

Rows as sidecars write them: burn-ins, text that ends inside a round, drafts that the engine trims,
parts cut by shipping, a batch that comes twice, requests told at admission and again at their end,
rounds that were lost. Nothing here knows what a report computes.
"""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SHIPPED = 7  # rounds in a shipped batch
KEEP = {"sql": (0.95, 0.9, 0.85, 0.8), "prose": (0.5, 0.4, 0.3, 0.2), "code": (0.8, 0.75, 0.9, 0.9)}
"""Chance that the proposal at each position is kept, by class."""
MS = 10**6

Row = dict[str, Any]


class Drawn(NamedTuple):
    """A request's part in one round."""

    seq: int
    at: int
    context: int
    k: int
    verified: int
    accepted: int
    emitted: int
    end: str


class Block(NamedTuple):
    """What runs now. began: ns since 1970; slow: what its pair's times are multiplied by."""

    pair: int
    arm: str
    began: int
    slow: float

    @property
    def k(self) -> int:
        """Draft length of the arm."""
        return int(self.arm[1:])


@dataclass
class Running:
    """A request in the batch. remaining: tokens until its end; rounds: not shipped yet."""

    row: Row
    context: int
    remaining: int
    rounds: list[Drawn] = field(default_factory=list)


class Engine:
    """One boot of one replica, and the rows that its sidecar wrote."""

    def __init__(self, replica: str, epoch: str, policy: int, price: float | None = None) -> None:
        self.replica, self.epoch, self.policy, self.price = replica, epoch, policy, price
        self.random = random.Random(replica)
        self.rows: dict[str, list[Row]] = {
            name: [] for name in ("round", "request_part", "request", "loss")
        }
        self.running: list[Running] = []
        self.queue: list[Row] = []
        self.seq, self.admitted, self.since_shipped = 0, 0, 0

    def admit(self, at: int, block: Block, **request: Any) -> Row:
        """A request that the engine takes in, and its row."""
        self.admitted += 1
        row = {
            **self._of_boot(), "request": zlib.crc32(self.replica.encode()) * 10**6 + self.admitted,
            "seq": self._next(), "admitted_at": at, "policy": self.policy, "pair": block.pair,
            "arm": block.arm, "temperature": 0.0, "top_p": 1.0, "guided": False, "reason": "none",
            **request,
        }  # fmt: skip
        self.rows["request"].append(row)
        return row

    def start(self, row: Row) -> None:
        """Put a request into the batch."""
        self.running.append(Running(row, row["prompt_tokens"], row["requested_output"]))

    def round(self, at: int, block: Block) -> int:
        """One round over all that run; returns when it ended, ns since 1970."""
        seq, batch, k = self._next(), list(self.running), block.k
        drawn = [self._draw(one, seq, at, k) for one in batch]
        times = self._times(k, len(batch), block.slow)
        wall_us = sum(times.values()) + 30.0
        end = at + int(1e3 * wall_us)
        lost = self.random.random() < 0.01
        if lost:
            self._lose(seq, at)
        else:
            self.rows["round"].append(self._round(batch, drawn, block, times, wall_us))
        for one, outcome in zip(batch, drawn, strict=True):
            if lost:
                self._ship(one, block)  # a part has no gaps
            else:
                one.rounds.append(outcome)
            one.context += outcome.emitted
            one.remaining -= outcome.emitted
            if outcome.end != "none":
                self._ship(one, block)
                self.running.remove(one)
                self._end(one, end, block, outcome.end)
        self.since_shipped += 1
        if self.since_shipped == SHIPPED:
            self.ship(block)
        return end

    def ship(self, block: Block) -> None:
        """Send off what the rounds left; a part lies within one block."""
        for one in self.running:
            self._ship(one, block)
        self.since_shipped = 0

    def boot_row(self, started_at: int) -> Row:
        """How the boot defines itself."""
        labels = ("host", "engine", "engine_version", "hook_version", "target", "method", "role")
        sizes = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
        return {
            **self._of_boot(), "started_at": started_at, "epoch": self.epoch, "k_max": 8, "rank": 0,
            "gpu_uuids": ["GPU-0", "GPU-1"], "gpu_type": "H200", "price_per_hour": self.price,
            **dict.fromkeys(labels, "x"), **dict.fromkeys(sizes, 1),
        }  # fmt: skip

    def batch_rows(self, stored_at: int) -> list[Row]:
        """The ledger of two batches."""
        half, ledger = self.seq // 2, []
        for number, (first, last) in enumerate(((0, half), (half, self.seq)), start=1):
            inside = [row for row in self.rows["round"] if first <= row["seq"] < last]
            requests = sum(first <= row["seq"] < last for row in self.rows["request"])
            starts = [row["started_at"] for row in inside]
            ledger.append(
                {
                    **self._of_boot(), "number": number, "first_seq": first, "next_seq": last,
                    "rounds": len(inside), "requests": requests, "request_parts": 0, "losses": 0,
                    "stored_at": stored_at, "first_at": min(starts), "last_at": max(starts),
                }
            )  # fmt: skip
        return ledger

    def _draw(self, one: Running, seq: int, at: int, k: int) -> Drawn:
        verified = k - (k > 2 and self.random.random() < 0.1)
        keep, accepted = KEEP[one.row["class"]], 0
        while accepted < verified and self.random.random() < keep[accepted]:
            accepted += 1
        emitted, end = accepted + 1, "none"
        if emitted >= one.remaining:
            emitted, end = one.remaining, "length"
        return Drawn(seq, at, one.context, k, verified, accepted, emitted, end)

    def _times(self, k: int, batch: int, slow: float) -> dict[str, float]:
        mean_us = {
            "draft_us": 300.0 * k,
            "verify_us": 5000.0 + 40.0 * batch * (k + 1),
            "sample_us": 200.0 + 10.0 * k,
            "idle_us": 90.0,
            "catchup_us": 15.0 if k else 0.0,
            "prefill_us": 100.0,
        }
        return {name: slow * us * self.random.uniform(0.95, 1.05) for name, us in mean_us.items()}

    def _round(
        self,
        batch: list[Running],
        drawn: list[Drawn],
        block: Block,
        times: dict[str, float],
        wall_us: float,
    ) -> Row:
        names = [one.row["class"] for one in batch]

        def of_class(values: list[int]) -> list[int]:
            sums: Counter[str] = Counter()
            for name, value in zip(names, values, strict=True):
                sums[name] += value
            return [sums[name] for name in sorted(set(names))]

        columns = {
            "proposed": [one.k for one in drawn],
            "verified": [one.verified for one in drawn],
            "accepted": [one.accepted for one in drawn],
            "emitted": [one.emitted for one in drawn],
        }
        contexts = [one.context for one in drawn]
        return {
            **self._of_boot(), "seq": drawn[0].seq, "started_at": drawn[0].at,
            "policy": self.policy, "pair": block.pair, "arm": block.arm,
            "block_age_ms": (drawn[0].at - block.began) // MS, "waiting": len(self.queue),
            "timing_source": "cuda", "wall_us": wall_us, **times, "prefill_tokens": 3,
            "padded_tokens": block.k, "invalid": 0, "preempted": int(drawn[0].seq % 50 == 0),
            "batch": len(batch), "k": block.k, "n_q": sum(one.verified + 1 for one in drawn),
            "n_kv": sum(contexts), **{name: sum(values) for name, values in columns.items()},
            "model_bytes": 10**9 + 1000 * sum(contexts),
            "dram_active": self.random.random() if drawn[0].seq % 3 else None,
            "classes": sorted(set(names)), "class_sequences": of_class([1] * len(batch)),
            "class_context": of_class(contexts),
            **{f"class_{name}": of_class(values) for name, values in columns.items()},
        }  # fmt: skip

    def _lose(self, seq: int, at: int) -> None:
        self.rows["loss"].append(
            {
                **self._of_boot(), "lost_at": at, "table": "round", "reason": "ring_full",
                "first_seq": seq, "count": 1, "detail": "",
            }
        )  # fmt: skip

    def _ship(self, one: Running, block: Block) -> None:
        if not one.rounds:
            return
        rounds, one.rounds = one.rounds, []
        starts = [each.at for each in rounds]
        gaps_ms = [(b - a) / MS for a, b in itertools.pairwise(starts)]
        bins = Counter(math.ceil(math.log(gap) / math.log(1.01 / 0.99)) for gap in gaps_ms)
        ks, verified, accepted, emitted = (
            [getattr(each, name) for each in rounds]
            for name in ("k", "verified", "accepted", "emitted")
        )
        self.rows["request_part"].append(
            {
                **self._of_boot(), "request": one.row["request"], "first_seq": rounds[0].seq,
                "last_seq": rounds[-1].seq, "started_at": starts[0], "class": one.row["class"],
                "policy": self.policy, "pair": block.pair, "arm": block.arm,
                "context": rounds[0].context, "rounds": len(rounds), "k": ks,
                "verified": [] if verified == ks else verified, "accepted": accepted,
                "emitted": [] if emitted == [a + 1 for a in accepted] else emitted,
                "end": rounds[-1].end, "gap_bins": sorted(bins),
                "gap_counts": [bins[number] for number in sorted(bins)],
            }
        )  # fmt: skip

    def _end(self, one: Running, at: int, block: Block, reason: str) -> None:
        row = one.row
        stay_ms = (at - row["admitted_at"]) / MS
        wrong = row["arm"] == "k4" and row["content"] % 61 == 7
        self.rows["request"].append(
            {
                **row, "seq": self._next(), "ended_at": at, "last_pair": block.pair,
                "output_tokens": row["requested_output"] - one.remaining, "reason": reason,
                "queue_ms": 0.1 * stay_ms, "ttft_ms": 0.2 * stay_ms, "e2e_ms": stay_ms,
                "decode_ms": 0.8 * stay_ms, "digest": 31 * row["content"] + wrong,
            }
        )  # fmt: skip

    def _of_boot(self) -> Row:
        return {"replica": self.replica, "boot": f"boot of {self.replica}"}

    def _next(self) -> int:
        self.seq += 1
        return self.seq - 1


def run_cohorts(engine: Engine, replicates: int, began: int) -> int:
    """Pairs of one class and load: the same requests in every arm, from empty to empty.

    Two replicates share their contents. Returns when the last one ended, ns since 1970.
    """
    plan, at = (("sql", 3), ("sql", 12), ("prose", 12), ("code", 3)), began
    for replicate in range(replicates):
        for place, (class_, size) in enumerate(plan):
            pair = 1 + len(plan) * replicate + place
            slow = engine.random.uniform(0.9, 1.1)
            for arm in engine.random.sample(("k0", "k2", "k4"), 3):
                block = Block(pair, arm, at, slow * engine.random.uniform(0.97, 1.03))
                same = random.Random(100 * (replicate // 2) + place)
                for number in range(size):
                    row = engine.admit(
                        at, block, **{"class": class_}, prompt_tokens=same.choice((100, 200)),
                        requested_output=same.choice((20, 30, 40)),
                        content=10_000 * (replicate // 2) + 100 * place + number,
                    )  # fmt: skip
                    engine.start(row)
                while engine.running:
                    at = engine.round(at, block)
                at += 10 * MS
    return at


def run_blocks(
    engine: Engine, pairs: int, began: int, block_ms: int, gap_ms: float, seats: int
) -> None:
    """Open traffic of two classes in blocks of two arms, in random order within a pair.

    began: a multiple of two block lengths, ns since 1970. gap_ms: mean time between arrivals;
    seats: requests that the engine runs at once, the others wait.
    """
    at, arrivals = began, _arrivals(engine.random, began, gap_ms)
    coming = next(arrivals)
    while at < began + 2 * pairs * block_ms * MS:
        place = at // (block_ms * MS)
        pair = place // 2
        number = pair - began // (2 * block_ms * MS)
        order = random.Random(f"{engine.replica} {number}").sample(("k0", "k2"), 2)
        pace = random.Random(number).uniform(0.95, 1.05)
        block = Block(pair, order[place % 2], place * block_ms * MS, pace)
        end = block.began + block_ms * MS
        while at < end:
            while coming <= at:
                engine.queue.append(_asked(engine, coming, block))
                coming = next(arrivals)
            while engine.queue and len(engine.running) < seats:
                engine.start(engine.queue.pop(0))
            at = engine.round(at, block) if engine.running else max(at, min(coming, end))
        engine.ship(block)


def _asked(engine: Engine, at: int, block: Block) -> Row:
    draw = engine.random
    return engine.admit(
        at, block, **{"class": draw.choice(("sql", "prose"))},
        prompt_tokens=draw.choice((100, 300)), requested_output=draw.randint(20, 60),
        content=draw.randrange(10**9),
    )  # fmt: skip


def _arrivals(draw: random.Random, began: int, gap_ms: float) -> Iterator[int]:
    at = began
    while True:
        at += int(draw.expovariate(1.0 / gap_ms) * MS)
        yield at
