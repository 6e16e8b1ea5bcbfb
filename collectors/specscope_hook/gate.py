"""A policy in the hook: the k of a sequence, and the arm of a block.

A policy is immutable and numbered. An arm is `k0` or `k<n>` (one k for all), `current` (the
policy's table), `current+<cell>` (cells before that table), or its own table under any name. A pair
has one block of each arm. A keyed hash defines their order, so that everyone can recompute it.
After the last pair the fallback table is in force, without any message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specscope_hook import bounds
from specscope_hook.errors import PolicyError

CURRENT = "current"
KINDS = ("cohort", "blocks", "table")
RANGES = ("context", "output", "batch", "queue")
MOST_ARMS = 32
MOST_CELLS = 512
MOST_CELLS_OF_CLASS = 64
"""Cells that one sequence may have to be compared with. The engine waits for all of its batch."""
LONGEST_NAME = 64
LONGEST_BLOCK_MS = 7 * 86_400_000
LIMITS = ("gap_p95_ms", "ttft_p95_ms", "tokens_per_round")
"""Of a guardrail; see specscope_agent.guardrail."""

_MOST_U32 = (1 << 32) - 1
_MOST_U64 = (1 << 64) - 1
_SHARE_STEPS = 1 << 32
_SHORTEST_PAIR_MS = 1000  # pairs are numbered by time since 1970, in 32 bits
_EVERY = (0.0, float("inf"))


@dataclass(frozen=True, slots=True)
class Cell:
    """Where one k applies: a class (None: any) and half-open ranges [lo, hi) (None: any)."""

    class_: str | None
    ranges: tuple[tuple[float, float] | None, ...]
    k: int


_Row = tuple[float, float, float, float, float, float, float, float, int]


@dataclass(frozen=True, slots=True)
class Table:
    """Cells in order, and the draft length if none matches. Create it with `of`.

    by_class: bounds and k of the cells that a class can match; "" for a class without cells.
    """

    cells: tuple[Cell, ...]
    default_k: int
    by_class: Mapping[str, tuple[_Row, ...]]

    @classmethod
    def of(cls, cells: Sequence[Cell], default_k: int) -> Table:
        """Raises PolicyError if a class has more cells than a round has time for."""
        classes = {cell.class_ for cell in cells if cell.class_ is not None} | {""}
        by_class = {
            class_: tuple(_row(cell) for cell in cells if cell.class_ in (None, class_))
            for class_ in classes
        }
        for class_, rows in by_class.items():
            if len(rows) > MOST_CELLS_OF_CLASS:
                raise PolicyError(
                    f"{len(rows)} cells of the table apply to class {class_ or 'any'!r}; at most "
                    f"{MOST_CELLS_OF_CLASS}"
                )
        return cls(tuple(cells), default_k, by_class)

    def k(self, class_: str, context: int, output: int, batch: int, queue: int) -> int:
        """Draft length by the first matching cell. HOT PATH: once per sequence."""
        by_class = self.by_class
        for c0, c1, o0, o1, b0, b1, q0, q1, k in by_class.get(class_) or by_class[""]:
            if c0 <= context < c1 and o0 <= output < o1 and b0 <= batch < b1 and q0 <= queue < q1:
                return k
        return self.default_k


def _row(cell: Cell) -> _Row:
    (c0, c1), (o0, o1), (b0, b1), (q0, q1) = (limits or _EVERY for limits in cell.ranges)
    return c0, c1, o0, o1, b0, b1, q0, q1, cell.k


@dataclass(frozen=True, slots=True)
class Arm:
    """A draft length for every sequence, or a table."""

    name: str
    rule: int | Table


@dataclass(frozen=True, slots=True)
class Gate:
    """A valid policy."""

    policy: int
    kind: str
    seed: int
    arms: tuple[Arm, ...]
    block_ms: int | None
    first_pair: int
    last_pair: int | None
    share: float
    rules: Table
    fallback: Table
    """In force after the last pair; the policy's own table when it names none."""
    detach: bool

    @classmethod
    def from_policy(cls, text: str | dict[str, Any]) -> Gate:
        """Read a policy's JSON.

        Raises PolicyError with the fault; nothing is guessed.
        """
        try:
            raw = bounds.parsed(text) if isinstance(text, str) else text
            return _read(bounds.mapping(raw, "the policy"))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise PolicyError(f"not a policy: {error}") from error

    @property
    def table(self) -> tuple[Cell, ...]:
        """Cells of the policy's table."""
        return self.rules.cells

    @property
    def default_k(self) -> int:
        """Draft length if no cell matches."""
        return self.rules.default_k

    def ended(self) -> Gate:
        """The policy after its last pair: its fallback table, without an experiment."""
        return replace(
            self, kind="table", arms=(), block_ms=None, last_pair=None, rules=self.fallback
        )

    def k(
        self, class_: str, context: int, output: int, batch: int, queue: int, arm: str = CURRENT
    ) -> int:
        """Draft length of a sequence under an arm: the first matching cell, or the default.

        context, output: cached tokens now and requested tokens. batch, queue: running and waiting
        requests now.
        """
        rule = self._rule(arm)
        return rule if isinstance(rule, int) else rule.k(class_, context, output, batch, queue)

    def _rule(self, name: str) -> int | Table:
        for arm in self.arms:
            if arm.name == name:
                return arm.rule
        return _named_rule(name, self.rules)

    def order(self, replica: str, boot: str, pair: int) -> list[str]:
        """The arms of a pair's blocks, in running order.

        A permutation, uniform over the keyed hash of (seed, policy, replica, boot, pair).
        """
        names = [arm.name for arm in self.arms]
        drawn = self._draw("order", replica, boot, pair)
        for last in range(len(names) - 1, 0, -1):
            drawn, place = divmod(drawn, last + 1)
            names[last], names[place] = names[place], names[last]
        return names

    def arm(self, replica: str, boot: str, pair: int) -> str:
        """The arm of a pair's first block; `current` if the pair is not experimental."""
        if not self.arms or not self.experimental(replica, boot, pair):
            return CURRENT
        return self.order(replica, boot, pair)[0]

    def experimental(self, replica: str, boot: str, pair: int) -> bool:
        """Whether a pair runs arms: it is in the experimental share, and between the first and the
        last pair."""
        if pair < self.first_pair or self.over(pair):
            return False
        return self._draw("share", replica, boot, pair) % _SHARE_STEPS < self.share * _SHARE_STEPS

    def over(self, pair: int) -> bool:
        """Whether a pair comes after the last."""
        return self.last_pair is not None and pair > self.last_pair

    def _draw(self, what: str, replica: str, boot: str, pair: int) -> int:
        text = json.dumps([what, self.policy, replica, boot, pair]).encode()
        key = self.seed.to_bytes(32, "little")
        return int.from_bytes(hashlib.blake2b(text, digest_size=32, key=key).digest(), "little")


def _read(raw: dict[str, Any]) -> Gate:
    block_ms, last_pair = raw.get("block_ms"), raw.get("last_pair")
    rules = _table(raw, "the policy")
    fallback = raw.get("fallback")
    arms = bounds.listed(raw.get("arms", []), "arms", MOST_ARMS)
    gate = Gate(
        policy=bounds.whole(raw["policy"], "policy", _MOST_U32),
        kind=bounds.text(raw.get("kind", "table"), "kind", LONGEST_NAME),
        seed=bounds.whole(raw.get("seed", 0), "seed", _MOST_U64),
        arms=tuple(_arm(arm, rules) for arm in arms),
        block_ms=None if block_ms is None else bounds.whole(block_ms, "block_ms", LONGEST_BLOCK_MS),
        first_pair=bounds.whole(raw.get("first_pair", 0), "first_pair", _MOST_U32),
        last_pair=None if last_pair is None else bounds.whole(last_pair, "last_pair", _MOST_U32),
        share=bounds.number(raw.get("share", 0.0), "share", 1.0),
        rules=rules,
        fallback=rules if fallback is None else _table(fallback, "fallback"),
        detach=bounds.flag(raw.get("detach", False), "detach"),
    )
    _check(gate, raw)
    return gate


def _check(gate: Gate, raw: dict[str, Any]) -> None:
    """Check relations between fields, and fields that the hook itself ignores."""
    if gate.kind not in KINDS:
        raise PolicyError(f"a policy of kind {gate.kind!r}; known are {', '.join(KINDS)}")
    if len({arm.name for arm in gate.arms}) != len(gate.arms):
        raise PolicyError("an arm is named twice")
    if gate.last_pair is not None and gate.last_pair < gate.first_pair:
        raise PolicyError(f"last_pair {gate.last_pair} comes before first_pair {gate.first_pair}")
    if gate.kind == "blocks":
        if not gate.arms or not gate.block_ms:
            raise PolicyError("blocks need arms and a length")
        if len(gate.arms) * gate.block_ms < _SHORTEST_PAIR_MS:
            raise PolicyError(f"a pair of blocks shorter than {_SHORTEST_PAIR_MS} ms")
    if raw.get("burn_in_ms") is not None:
        bounds.whole(raw["burn_in_ms"], "burn_in_ms", gate.block_ms or LONGEST_BLOCK_MS)
    for name in LIMITS:
        limit = bounds.mapping(raw.get("guardrail") or {}, "guardrail").get(name)
        if limit is not None:
            bounds.number(limit, f"guardrail {name}", 1e9)
    for name, most in (("author", 200), ("note", 2000)):
        if raw.get(name) is not None:
            bounds.text(raw[name], name, most)


def _table(raw: Any, name: str) -> Table:
    body = bounds.mapping(raw, name)
    cells = bounds.listed(body.get("table", []), "table", MOST_CELLS)
    default_k = bounds.draft_length(body.get("default_k", 0), "default_k")
    return Table.of([_cell(cell) for cell in cells], default_k)


def _named_rule(name: str, rules: Table) -> int | Table:
    """The arm that a name defines. Raises PolicyError for an undefined name."""
    if name == CURRENT:
        return rules
    if name == "clean":
        return 0
    if name[:1] == "k" and name[1:].isascii() and name[1:].isdigit() and len(name) < LONGEST_NAME:
        return bounds.draft_length(int(name[1:]), "k")
    raise PolicyError(f"no arm is called {name!r}")


def _arm(raw: Any, rules: Table) -> Arm:
    body = bounds.mapping(raw, "an arm")
    name = bounds.text(body["name"], "the name of an arm", LONGEST_NAME)
    if body.get("table") is not None:
        return Arm(name, _table(body, f"arm {name!r}"))
    cells = [_cell(cell) for cell in bounds.listed(body.get("cells", []), "cells", MOST_CELLS)]
    if cells:
        return Arm(name, Table.of([*cells, *rules.cells], rules.default_k))
    if name.startswith(CURRENT + "+"):
        raise PolicyError(f"arm {name!r} says no cells")
    if body.get("k") is not None:
        return Arm(name, bounds.draft_length(body["k"], "k"))
    return Arm(name, _named_rule(name, rules))


def _cell(raw: Any) -> Cell:
    body = bounds.mapping(raw, "a cell")
    class_ = body.get("class")
    if class_ is not None:
        bounds.text(class_, "class", 2 * LONGEST_NAME)
    ranges = tuple(_range(body.get(name), name) for name in RANGES)
    return Cell(class_, ranges, bounds.draft_length(body["k"], "k"))


def _range(raw: Any, name: str) -> tuple[float, float] | None:
    if raw is None:
        return None
    if len(bounds.listed(raw, name, 2)) != 2:
        raise PolicyError(f"{name} is not a pair of limits")
    low, high = (
        None if limit is None else bounds.number(limit, name, bounds.MOST_TOKENS) for limit in raw
    )
    limits = (low or 0.0, _EVERY[1] if high is None else high)
    if not limits[0] < limits[1]:
        raise PolicyError(f"{name} from {low} to {high} holds nothing")
    return limits
