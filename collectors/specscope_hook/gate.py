"""Which k a sequence gets, and which arm a block runs: a policy, as the hook follows it.

A policy is immutable and numbered. Its arms are `k0`, `k<n>` (one k for all), `current` (the
table) and `current+<cell>` (the table with one cell put before it). A pair holds one block
of each arm; their order is a keyed hash, so that anyone can recompute it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from specscope_hook.errors import PolicyError

CURRENT = "current"
KINDS = ("cohort", "blocks", "table")
_RANGES = ("context", "output", "batch", "queue")
_SHARE_STEPS = 1 << 32
_SHORTEST_PAIR_MS = 1000  # pairs are numbered by time since 1970, in 32 bits


@dataclass(frozen=True, slots=True)
class Cell:
    """Where its k applies: a class (None: any) and half-open ranges [lo, hi) (None: any)."""

    class_: str | None
    ranges: tuple[tuple[float, float] | None, ...]
    k: int

    def matches(self, class_: str, values: tuple[int, int, int, int]) -> bool:
        if self.class_ is not None and self.class_ != class_:
            return False
        return all(
            limits is None or limits[0] <= value < limits[1]
            for limits, value in zip(self.ranges, values, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Arm:
    """A fixed k for all, or the table, with the cells of `first` before it."""

    name: str
    k: int | None
    first: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True)
class Gate:
    """A policy that has been read and found to be one."""

    policy: int
    kind: str
    seed: int
    arms: tuple[Arm, ...]
    block_ms: int | None
    first_pair: int
    share: float
    table: tuple[Cell, ...]
    default_k: int

    @classmethod
    def from_policy(cls, text: str | dict[str, Any]) -> Gate:
        """Read a policy's JSON.

        Raises PolicyError with what is wrong; nothing is guessed.
        """
        try:
            raw = json.loads(text) if isinstance(text, str) else text
            gate = cls(
                policy=_whole(raw["policy"], "policy", 32),
                kind=str(raw.get("kind", "table")),
                seed=_whole(raw.get("seed", 0), "seed", 64),
                arms=tuple(_arm(arm) for arm in raw.get("arms", [])),
                block_ms=None
                if raw.get("block_ms") is None
                else _whole(raw["block_ms"], "block", 32),
                first_pair=_whole(raw.get("first_pair", 0), "first_pair", 32),
                share=float(raw.get("share", 0.0)),
                table=tuple(_cell(cell) for cell in raw.get("table", [])),
                default_k=_draft_length(raw.get("default_k", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise PolicyError(f"not a policy: {error}") from error
        except RecursionError as error:
            raise PolicyError("not a policy: it is nested too deeply") from error
        if gate.kind not in KINDS:
            raise PolicyError(f"a policy of kind {gate.kind!r}; known are {', '.join(KINDS)}")
        if not 0 <= gate.share <= 1:
            raise PolicyError(f"a share of {gate.share} is not within 0 and 1")
        if gate.kind == "blocks" and (not gate.arms or not gate.block_ms):
            raise PolicyError("blocks need arms and a length")
        if gate.kind == "blocks" and len(gate.arms) * (gate.block_ms or 0) < _SHORTEST_PAIR_MS:
            raise PolicyError(f"a pair of blocks shorter than {_SHORTEST_PAIR_MS} ms")
        return gate

    def k(
        self, class_: str, context: int, output: int, batch: int, queue: int, arm: str = CURRENT
    ) -> int:
        """Draft length of a sequence under an arm: the first cell that matches, or the default.

        context, output: tokens in its cache now and asked for; batch, queue: requests now.
        """
        chosen = self._by_name(arm)
        if chosen.k is not None:
            return chosen.k
        values = (context, output, batch, queue)
        for cell in (*chosen.first, *self.table):
            if cell.matches(class_, values):
                return cell.k
        return self.default_k

    def _by_name(self, name: str) -> Arm:
        for arm in self.arms:
            if arm.name == name:
                return arm
        return _named_arm(name)

    def order(self, replica: str, boot: str, pair: int) -> list[str]:
        """The arms of a pair's blocks, in the order in which they run.

        A permutation, uniform over the keyed hash of (seed, policy, replica, boot, pair).
        """
        names = [arm.name for arm in self.arms]
        drawn = self._draw("order", replica, boot, pair)
        for last in range(len(names) - 1, 0, -1):
            drawn, place = divmod(drawn, last + 1)
            names[last], names[place] = names[place], names[last]
        return names

    def arm(self, replica: str, boot: str, pair: int) -> str:
        """The arm of a pair's first block; `current` where the pair is not experimental."""
        if not self.arms or not self.experimental(replica, boot, pair):
            return CURRENT
        return self.order(replica, boot, pair)[0]

    def experimental(self, replica: str, boot: str, pair: int) -> bool:
        """Whether a pair is among the share that runs arms; never before the first pair."""
        if pair < self.first_pair:
            return False
        return self._draw("share", replica, boot, pair) % _SHARE_STEPS < self.share * _SHARE_STEPS

    def _draw(self, what: str, replica: str, boot: str, pair: int) -> int:
        text = json.dumps([what, self.policy, replica, boot, pair]).encode()
        key = self.seed.to_bytes(32, "little")
        return int.from_bytes(hashlib.blake2b(text, digest_size=32, key=key).digest(), "little")


def _named_arm(name: str) -> Arm:
    """An arm that its name defines. Raises PolicyError where it does not."""
    if name in (CURRENT, "clean"):
        return Arm(name, None if name == CURRENT else 0)
    if name[:1] == "k" and name[1:].isascii() and name[1:].isdigit():
        return Arm(name, _draft_length(int(name[1:])))
    raise PolicyError(f"no arm is called {name!r}")


def _arm(raw: dict[str, Any]) -> Arm:
    name = raw["name"]
    cells = tuple(_cell(cell) for cell in raw.get("cells", []))
    if cells or name.startswith(CURRENT + "+"):
        if not cells:
            raise PolicyError(f"arm {name!r} says no cells")
        return Arm(name, None, cells)
    if raw.get("k") is not None:
        return Arm(name, _draft_length(raw["k"]))
    return _named_arm(name)


def _cell(raw: dict[str, Any]) -> Cell:
    ranges = tuple(_range(raw.get(name), name) for name in _RANGES)
    class_ = raw.get("class")
    if class_ is not None and not isinstance(class_, str):
        raise PolicyError(f"a class {class_!r} is not a name")
    return Cell(class_, ranges, _draft_length(raw["k"]))


def _range(raw: Any, name: str) -> tuple[float, float] | None:
    if raw is None:
        return None
    low, high = raw
    limits = (float(low or 0), float("inf") if high is None else float(high))
    if not limits[0] < limits[1]:
        raise PolicyError(f"{name} from {low} to {high} holds nothing")
    return limits


def _whole(value: Any, what: str, bits: int) -> int:
    """A whole number that its column can hold."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PolicyError(f"{what} is {value!r}, not a whole number")
    if value >> bits:
        raise PolicyError(f"{what} is more than {bits} bits hold")
    return value


def _draft_length(value: Any) -> int:
    if _whole(value, "k", 32) > 255:
        raise PolicyError(f"k is {value}, more than any engine drafts")
    return int(value)
