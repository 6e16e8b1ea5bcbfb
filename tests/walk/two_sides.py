"""Engines that cannot change k, and a router that swaps streams of clients between two of them.

Each side is the real engine on a clock of known cost, behind a ring of its own. Its hook numbers
the blocks as that of any engine that keeps its own draft length; the router goes by what the policy
in the store says. Clients wait for their answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from known_cost import Cost, CostedEngine, Machine, Replay, greedy, prompt

from specscope.engine.api import RequestEnd
from specscope.evaluate.experiment.crossover import SIDES
from specscope.gate.swap import Swap
from specscope.policy.stored import StoredPolicy, read_policies
from specscope.store.connection import Store
from specscope_hook.blocks import Blocks

PROMPT, OUTPUT = 8, 8  # over within the burn-in of a block
REPLAY = Replay(OUTPUT)


class Shared(Machine):
    """Noise of its own, and what both sides go through at the same time: slow for a while."""

    side: CostedSide

    def factor(self, us: float) -> float:
        return super().factor(us) * math.exp(0.1 * math.sin(self.side.clock.ns / 3e9))


class CostedSide(CostedEngine):
    """One side during one deploy. k: of all its rounds; 0 for an engine without speculation."""

    def __init__(
        self, rings: Path, name: str, deploy: str, cost: Cost, rates: Mapping[str, float], k: int,
        clients: int, draft: str | None = None,
    ) -> None:  # fmt: skip
        machine = Shared(f"{name}{deploy}", drift=0.0, noise=0.05, block=0.0)
        machine.side = self
        super().__init__(
            rings, name, cost, {label: [rate] * max(1, k) for label, rate in rates.items()},
            machine, k_max=k, slots=clients, capacity=PROMPT + OUTPUT, deploy=deploy,
            draft=draft,
        )  # fmt: skip
        blocks = Blocks(self.ring, self.recorder, name, self.boot.boot, self.clock, follows=False)

        def keep(sequences, _waiting):
            blocks.turn()
            return [k] * len(sequences)

        self.gate = keep


class Router:
    """Sends each client's next request where the policy says that its stream goes now.

    clients: in each stream, by label. An observer of both engines.
    """

    def __init__(self, policy: StoredPolicy, sides: Mapping[str, CostedSide]) -> None:
        said = policy.body["crossover"]
        block_s = policy.body["block_ms"] // 1000
        third = tuple(said.get("third", ()))
        self.swap = Swap(
            tuple(said["left"]), tuple(said["right"]), block_s, said["seed"], third=third
        )
        self.sides, self.labels = sides, list[str]()
        self.asked, self.now = 0, 0
        for side in sides.values():
            side.engine.observers.append(self)

    def begin(self, clients: Mapping[str, int]) -> None:
        """The first request of every client; the order of the labels numbers the streams."""
        self.labels = list(clients)
        self.now = max(side.clock.unix_ns() for side in self.sides.values())
        for label, count in clients.items():
            for _ in range(count):
                self._ask(label)

    def _ask(self, label: str) -> None:
        block = self.now // (self.swap.block_s * 10**9)
        side = self.sides[SIDES[self.swap.side_of(block, self.labels.index(label))]]
        self.asked += 1
        number = self.asked % 3
        id_ = f"{side.boot.epoch}/{self.asked}"
        side.drafter.completions[id_] = REPLAY.of(PROMPT, number)
        side.engine.submit(id_, prompt(PROMPT, number), greedy(OUTPUT), label)

    def ended(self, end: RequestEnd) -> None:
        self._ask(end.request.label)

    def round_begins(self): ...

    def round_ended(self, report): ...

    def admitted(self, request): ...

    def serve(self, until_ns: int) -> None:
        """Rounds of both sides in the order of time."""
        sides = list(self.sides.values())
        while True:
            busy = [side for side in sides if not side.engine.idle]
            behind = min(busy, key=lambda side: side.clock.ns)
            for side in sides:  # time passes for who has nothing to do
                if side.engine.idle:
                    side.clock.ns = max(side.clock.ns, behind.clock.ns)
            self.now = behind.clock.unix_ns()
            if self.now >= until_ns:
                return
            behind.engine.step()


def deploy(
    rings: Path, store: Store, name: str, costs: Mapping[str, Cost], ks: Mapping[str, int],
    rates: Mapping[str, float], clients: Mapping[str, int], begins: int, pairs: int,
    drafts: Mapping[str, tuple[str, Mapping[str, float]]] | None = None,
) -> int:  # fmt: skip
    """All sides from their start to their end, whole pairs between; when it ended, ns since 1970.

    ks: what each side runs. begins: ns since 1970; pairs before it are cut. drafts: of sides whose
    drafter has a name, the name and the rates at which its proposals are kept.
    """
    policy = read_policies(store)[-1]
    both = sum(clients.values())
    sides = {
        side: CostedSide(rings, side, name, costs[side], own, ks[side], both, draft)
        for side in ks
        for draft, own in [(drafts or {}).get(side, (None, rates))]
    }
    for side in sides.values():
        side.clock.ns = begins - side.clock.began
        side.reader.control_write(json.dumps(policy.body))
    router = Router(policy, sides)
    router.begin(clients)
    pair_ns = 2 * router.swap.block_s * 10**9
    first = max(-(-begins // pair_ns), policy.body["first_pair"] // 2)  # it counts blocks
    until = (first + pairs) * pair_ns
    router.serve(until)
    for side in sides.values():
        side.close(store)
    return until


def faster(cost: Cost, factor: float) -> Cost:
    """The cost on a machine that is faster by a factor in all that it does."""
    names = ("step", "query", "context", "draft", "gap")
    return replace(cost, **{name: getattr(cost, name) / factor for name in names})


def tokens_per_s(cost: Cost, rate: float, k: int, clients: int, rounds: int = 60_000) -> float:
    """Output of a full engine, by arithmetic that shares no code with it. [tokens/s]

    rate: chance that a proposal is kept, given that all before it were. A row proposes no more
    than its text has left; the draft runs for the length asked.
    """
    random = np.random.default_rng((1, k, clients))
    left = random.integers(1, OUTPUT + 1, clients)
    emitted, took = 0, 0.0
    for _ in range(rounds):
        width = np.minimum(k, left)
        kept = np.minimum(random.geometric(1.0 - rate, clients) - 1, width)
        n_kv = (PROMPT + OUTPUT - left).sum()
        took += cost.step + cost.query * (width + 1).sum() + cost.context * n_kv + cost.draft * k
        given = np.minimum(kept + 1, left)
        emitted += int(given.sum())
        left -= given
        left[left == 0] = OUTPUT
    return 1e6 * emitted / took
