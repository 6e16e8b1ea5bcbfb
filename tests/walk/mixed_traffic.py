"""Four classes through one engine whose gate is the hook's: calibrate, apply, serve, look again.

Clients wait for their answers, so the engine is always full. Policies reach the running engine by
the ring's control page, as the sidecar puts them there; blocks are told by the hook's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from known_cost import Cost, CostedEngine, HookedEngine, Machine, Replay, prompt

from specscope.engine.api import RequestEnd, SamplingParams
from specscope.gate.arms import read_arms
from specscope.policy.arms import PolicyArm
from specscope.policy.stored import HoldOut, next_table, read_policies, write_policy
from specscope.policy.table import GateTable
from specscope.store.connection import Store
from specscope.store.roll import roll
from specscope_hook.adapters.reference_plugin import PolicyGate
from specscope_hook.blocks import Blocks

PROMPT, LONGEST = 16, 24

Request = tuple[Sequence[int], SamplingParams]
Ask = Callable[[str, str], Request]
"""(class, id) to a prompt and how it is answered."""


class Clients:
    """An observer that asks again when an answer has come, so that the engine stays full."""

    def __init__(self, hooked: HookedEngine, count: int, ask: Ask) -> None:
        self.engine, self.count, self.make = hooked.engine, count, ask
        self.asking: set[str] = set()
        self.asked = 0
        hooked.engine.observers.append(self)

    def ask(self, labels: Sequence[str]) -> None:
        """From now on these classes alone, in equal numbers; what others have running is cut."""
        self.asking = set()
        for row in [*self.engine.rows, *self.engine.queue]:
            self.engine.abort(row.info.id)
        self.asking = set(labels)
        for place in range(self.count):
            self._submit(labels[place % len(labels)])

    def _submit(self, label: str) -> None:
        self.asked += 1
        id_ = f"{label}/{self.asked}"
        self.engine.submit(id_, *self.make(label, id_), label)

    def ended(self, end: RequestEnd) -> None:
        if end.reason != "abort" and end.request.label in self.asking:
            self._submit(end.request.label)

    def round_begins(self): ...

    def round_ended(self, report): ...

    def admitted(self, request): ...


class Site:
    """One replica, its store, and an operator with `gate`'s own functions."""

    def __init__(
        self,
        hooked: HookedEngine,
        store: Store,
        labels: Sequence[str],
        arms: Sequence[int],
        ask: Ask,
    ) -> None:
        """arms: draft lengths that are tried."""
        self.hooked, self.store, self.labels = hooked, store, list(labels)
        self.names = tuple(f"k{k}" for k in arms)
        blocks = Blocks(
            hooked.ring, hooked.recorder, hooked.boot.replica, hooked.boot.boot, hooked.clock
        )
        hooked.gate = PolicyGate(blocks, 0, max(arms))
        self.clients = Clients(hooked, hooked.engine.slots, ask)

    @property
    def now(self) -> int:
        return self.hooked.clock.unix_ns()

    def apply(
        self,
        table: GateTable,
        block_s: float,
        arms: Sequence[str],
        tables: Sequence[PolicyArm] = (),
        pairs: int | None = None,
    ) -> tuple[int, int]:
        """Put a table in force with blocks of these arms; its number and when its pairs begin.

        tables: arms whose names do not say what they run. pairs: after which it ends by itself.
        """
        hold_out = HoldOut(1.0, block_s, block_s / 4, tuple(arms), pairs, tuple(tables))
        body = next_table(
            read_policies(self.store), table, now=self.now, hold_out=hold_out, closed_loop=True
        )
        body["seed"] = body["policy"]  # the order of arms is the same in every run
        write_policy(self.store, body, "walk", self.now)
        self.hooked.reader.control_write(json.dumps(body))
        return body["policy"], body["first_pair"] * len(arms) * body["block_ms"] * 1_000_000

    def serve(self, until_ns: int) -> None:
        """Rounds until a moment; then the ring is emptied."""
        while self.now < until_ns:
            assert self.hooked.engine.step()
        self.hooked.drain(self.store)

    def calibrate(self, pairs: int, block_s: float) -> int:
        """Blocks of every draft length, one class after the other; the policy's number."""
        policy, begins = self.apply(GateTable((), 0), block_s, self.names)
        self.clients.ask(self.labels)
        self.serve(begins)
        pair_ns = round(len(self.names) * block_s * 1e9)
        for place, label in enumerate(self.labels, start=1):
            self.clients.ask([label])
            self.serve(begins + place * pairs * pair_ns)
        return policy

    def hold_out(
        self,
        table: GateTable,
        pairs: int,
        block_s: float,
        arms: Sequence[str],
        tables: Sequence[PolicyArm] = (),
    ) -> int:
        """All classes together under a table, with blocks of these arms; the policy's number."""
        policy, begins = self.apply(table, block_s, arms, tables)
        self.clients.ask(self.labels)
        self.serve(begins + round(pairs * len(arms) * block_s * 1e9))
        return policy

    def run_arms(self, words: Sequence[str], pairs: int, block_s: float) -> None:
        """All classes together, in blocks of these arms by turns, with k = 0 in force; rolled up.

        words: as `gate calibrate --arms` takes them.
        """
        begins = self.start_arms(words, pairs, block_s)
        self.run_pairs(begins, pairs, len(words), block_s)

    def start_arms(self, words: Sequence[str], pairs: int, block_s: float) -> int:
        """Put so many pairs of these arms in force; when they begin, ns since 1970."""
        arms = read_arms(words)
        names = [arm.name for arm in arms]
        _, begins = self.apply(GateTable((), 0), block_s, names, arms, pairs)
        self.clients.ask(self.labels)
        return begins

    def run_pairs(self, begins: int, pairs: int, arms: int, block_s: float) -> None:
        """Serve until so many pairs have run since a beginning; rolled up."""
        self.serve(begins + round(pairs * arms * block_s * 1e9))
        roll(self.store, everything=True)


def costed_site(
    rings: Path,
    store: Store,
    rates: dict[str, float],
    cost: Cost,
    arms: Sequence[int],
    machine: Machine,
    slots: int = 16,
    seed: int = 7,
    began: int | None = None,
) -> Site:
    """A site on a clock of known cost. rates: of each class, the chance to keep a proposal."""
    hooked = CostedEngine(
        rings, "site", cost, {label: [rate] * max(arms) for label, rate in rates.items()},
        machine, k_max=max(arms), slots=slots, capacity=PROMPT + LONGEST, began=began,
    )  # fmt: skip
    hooked.drafter.seed = seed
    random, replay = Random(seed), Replay(LONGEST)
    texts: dict[str, Sequence[int]] = {}
    hooked.drafter.completions = texts

    def ask(_label: str, id_: str) -> Request:
        number = random.randrange(3)
        texts[id_] = replay.of(PROMPT, number)
        params = SamplingParams(mode="greedy", max_new_tokens=random.randint(12, LONGEST))
        return prompt(PROMPT, number), params

    return Site(hooked, store, list(rates), arms, ask)
