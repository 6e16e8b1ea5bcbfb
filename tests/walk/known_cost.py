"""The real engine on a clock that advances by a known cost, through the real hook into a store.

A tiny model decides, a replay drafter proposes, and every pass of either moves the clock by
T = step + query * n_q + context * n_kv, draft * k and gap, in microseconds. Prefill is free. What
the machine does to a step (its speed drifts, steps vary, a few stall) multiplies the cost, so it
falls on both arms alike and the truth stays what arithmetic says.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random
from unittest.mock import patch

import torch

from specscope.engine.api import RequestEnd, SamplingParams, fixed_gate
from specscope.engine.decode.drafters.drafter import Drafter
from specscope.engine.decode.drafters.replay import ReplayDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.timing import Clock
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder
from specscope.store.connection import Store
from specscope_agent.cut import cut
from specscope_agent.loss import rows_table
from specscope_agent.origin import Origin
from specscope_agent.rings import OpenRing
from specscope_agent.source import Source
from specscope_hook.adapters.reference import ReferenceObserver
from specscope_hook.attach import attach
from specscope_hook.boot import new_boot
from specscope_hook.ring import Cursor, RingReader
from specscope_hook.settings import HookSettings

SHAPE = ModelConfig(
    vocab=31, hidden=8, layers=1, heads=1, kv_heads=1, head_dim=8, ff=8, max_context=1400
)
HOUR = 3600 * 10**9
HOURS_AGO = 6 * HOUR  # where the clock begins: rows from the future are not kept


@dataclass(frozen=True)
class Cost:
    """Microseconds: of a verify pass, for each query token and each token of context in it; of
    each position drafted, however many rows; of the host before a round that drafts."""

    step: float
    query: float = 0.0
    context: float = 0.0
    draft: float = 0.0
    gap: float = 0.0

    def verify(self, n_q: float, n_kv: float) -> float:
        """Of a verify pass."""
        return self.step + self.query * n_q + self.context * n_kv

    def round(self, n_q: float, n_kv: float, k: int) -> float:
        """Of a whole round whose longest draft is k."""
        return self.verify(n_q, n_kv) + self.draft * k + (self.gap if k else 0.0)


class Machine:
    """How much slower than its cost each step is: drift, and noise around it.

    Sizes are standard deviations of logarithms. drift reverts over a minute of its own time.
    """

    def __init__(self, seed: object, drift: float, noise: float, block: float) -> None:
        self.random = Random(f"machine/{seed}")
        self.drift, self.noise, self.block = drift, noise, block
        self.slow, self.own = self.random.gauss(0.0, drift), 0.0

    def next_block(self) -> None:
        """What no other block shares, redrawn."""
        self.own = self.random.gauss(0.0, self.block)

    def factor(self, us: float) -> float:
        """Of a step of that length."""
        kept = math.exp(-us / 6e7)
        self.slow = kept * self.slow + self.random.gauss(0.0, self.drift * math.sqrt(1 - kept**2))
        stall = 4.0 if self.noise and self.random.random() < 0.0005 else 1.0
        return stall * math.exp(self.slow + self.own + self.random.gauss(0.0, self.noise))


class VirtualClock:
    """A clock that only moves when it is told to. began: ns since 1970; some hours ago if None."""

    def __init__(self, machine: Machine, began: int | None = None) -> None:
        self.machine, self.ns = machine, 0
        # Always the same minute of an hour: what is rolled up by hours never depends on now.
        self.began = time.time_ns() // HOUR * HOUR - HOURS_AGO if began is None else began

    def monotonic_ns(self) -> int:
        return self.ns

    def unix_ns(self) -> int:
        return self.began + self.ns

    def advance(self, us: float) -> None:
        if us:
            self.ns += round(1e3 * us * self.machine.factor(us))


class CostedDecoder(Decoder):
    """A decoder whose verify passes take time on a clock; only they ask for logits."""

    clock: VirtualClock
    cost: Cost

    def forward(self, tokens, cache, plan):
        self.n_kv = int((plan.positions[plan.packing.offsets == 0] + 1).sum())
        return super().forward(tokens, cache, plan)

    def logits(self, hidden):
        self.clock.advance(self.cost.verify(len(hidden), self.n_kv))
        return super().logits(hidden)


def costed_model(clock: VirtualClock, cost: Cost) -> CostedDecoder:
    """The same random weights every time, in float64, where there are no ties."""
    generator = torch.Generator().manual_seed(3)
    model = CostedDecoder(SHAPE)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.4, generator=generator)
    model.clock, model.cost = clock, cost
    model.to(torch.float64).ready()
    return model


def prompt(tokens: int, number: int) -> list[int]:
    """Prompt `number` of that length."""
    random = Random(f"{tokens}/{number}")
    return [random.randrange(SHAPE.vocab) for _ in range(tokens)]


@dataclass
class Replay:
    """What the model says to prompts, found once: (prompt tokens, number) to token ids."""

    output: int
    texts: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def of(self, tokens: int, number: int) -> list[int]:
        if (tokens, number) not in self.texts:
            clock = VirtualClock(Machine(0, 0.0, 0.0, 0.0))
            last = Ends()
            engine = Engine(
                costed_model(clock, Cost(1.0)),
                ReplayDrafter({}, [], SHAPE.vocab),
                k_max=0,
                slots=1,
                capacity=tokens + self.output,
                gate=fixed_gate(0),
                observers=[last],
            )
            engine.submit("alone", prompt(tokens, number), greedy(self.output))
            while engine.step():
                pass
            self.texts[tokens, number] = last.token_ids
        return self.texts[tokens, number]


class Ends:
    """Keeps the last text."""

    token_ids: list[int]

    def round_begins(self): ...

    def round_ended(self, report): ...

    def admitted(self, request): ...

    def ended(self, end: RequestEnd):
        self.token_ids = end.token_ids


def greedy(output: int) -> SamplingParams:
    return SamplingParams(mode="greedy", max_new_tokens=output)


class HookedEngine:
    """The engine with hook and ring, all on one clock; its gate may be changed."""

    def __init__(
        self,
        rings: Path,
        name: str,
        model: Decoder,
        drafter: Drafter,
        clock: Clock,
        *,
        k_max: int,
        slots: int,
        capacity: int,
        deploy: str = "",
        draft: str | None = None,
    ) -> None:
        """name: of the replica, and with the deploy of an epoch of its own. k_max: 0 for an engine
        without speculation. draft: what its Boot calls the drafter."""
        self.clock, self.drafter = clock, drafter
        start = {"SPECSCOPE_RINGS": str(rings), "SPECSCOPE_REPLICA": name, "SPECSCOPE_SALT": "walk"}
        with patch.dict(os.environ, start):
            settings = HookSettings.from_env(os.environ)
        # Arms are drawn from the boot's identifier: one name is one experiment, over and over.
        epoch = name + deploy
        self.boot = new_boot(
            settings, boot=blake2b(epoch.encode(), digest_size=8).hexdigest(), engine="reference",
            engine_version="test", target="test", method="draft_model" if k_max else "none",
            k_max=k_max, epoch=epoch, draft=draft,
        )  # fmt: skip
        self.ring, self.recorder = attach(settings, self.boot, clock)
        self.gate = fixed_gate(0)
        self.engine = Engine(
            model,
            drafter,
            k_max=k_max,
            slots=slots,
            capacity=capacity,
            gate=self.ask,
            observers=[ReferenceObserver(self.recorder)],
            clock=clock,
        )
        self.reader = RingReader.open(self.ring.path)
        self.open_ring = OpenRing(
            self.reader, Source(self.boot.replica, self.boot.boot), Origin.of(self.reader)
        )
        self.cursor = Cursor()

    def ask(self, sequences, waiting):
        """What the gate says."""
        return self.gate(sequences, waiting)

    def drain(self, store: Store) -> None:
        """What the ring holds into the store, by the sidecar's own functions."""
        more = True
        while more:
            made = cut(self.open_ring, self.cursor)
            assert not made.losses.rows
            for name, table in made.tables.items():
                store.insert(name, table)
            self.cursor, more = made.cursor, made.more
            self.reader.release(self.cursor)

    def close(self, store: Store) -> None:
        """Drain, name the boot, and remove the ring."""
        assert self.recorder.on
        self.recorder.close()
        self.drain(store)
        store.insert("boot", rows_table("boot", [dict(self.reader.boot)]))
        self.reader.close()
        self.ring.path.unlink()


class CostedEngine(HookedEngine):
    """The tiny model behind a replay drafter, on a clock that advances by their cost."""

    clock: VirtualClock
    drafter: ReplayDrafter

    def __init__(
        self,
        rings: Path,
        name: str,
        cost: Cost,
        rates: Mapping[str, Sequence[float]],
        machine: Machine,
        *,
        k_max: int,
        slots: int,
        capacity: int,
        deploy: str = "",
        draft: str | None = None,
        began: int | None = None,
    ) -> None:
        """rates: conditional acceptance by position, for each class."""
        clock, self.cost = VirtualClock(machine, began), cost
        drafter = ReplayDrafter({}, rates, SHAPE.vocab, delay_us=cost.draft, wait=clock.advance)
        super().__init__(
            rings, name, costed_model(clock, cost), drafter, clock,
            k_max=k_max, slots=slots, capacity=capacity, deploy=deploy, draft=draft,
        )  # fmt: skip

    def ask(self, sequences, waiting):
        ks = self.gate(sequences, waiting)
        if any(ks):
            self.clock.advance(self.cost.gap)
        return ks
