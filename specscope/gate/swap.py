"""The router's part of a crossover: the side of each stream in each block.

Blocks are numbered by time since 1970, in the router as in the hook. So a router that divides the
time by the block length swaps without a signal. A hash of the seed and the pair's number decides
which stream starts on the left; it is known before the pair begins. With three sides, each pair
swaps two of them by turns, and the third keeps its stream.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

from specscope.errors import UsageError
from specscope.evaluate.experiment.crossover import SIDES, swapping
from specscope.evaluate.verdict.choice import Rules
from specscope.evidence.differences import (
    COLUMNS,
    CONFIGURATION,
    Boot,
    declarable,
    speculates,
    undeclared,
)
from specscope.policy.stored import StoredPolicy, checked, next_table, table_in_force, until

MAP, SIDES_MAP = "specscope-swap.map", "specscope-sides.map"
LEAST_PAIRS = Rules().min_pairs  # of two sides, in each deploy
BLOCK_S = 240  # of a block, where nobody says otherwise


@dataclass(frozen=True, slots=True)
class Swap:
    """The plan of a crossover.

    left, right: replicas. block_s: length of a block in whole seconds. third: replicas of a third
    side; empty for two sides. differs: declared differences between the sides, besides speculation
    and its length.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    block_s: int
    seed: int = 1
    differs: tuple[str, ...] = ()
    third: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        every = [replica for side in self.sides for replica in side]
        if not self.left or not self.right or len(set(every)) < len(every):
            raise UsageError("a crossover needs replicas on each side, and no replica on two sides")
        if wrong := [part for part in self.differs if not declarable(part)]:
            raise UsageError(
                f"{wrong[0]!r} is not a possible difference between sides: {', '.join(COLUMNS)}, "
                "or "
                f"{CONFIGURATION}KEY"
            )

    @property
    def sides(self) -> tuple[tuple[str, ...], ...]:
        """The replicas of each side, two or three."""
        return tuple(filter(None, (self.left, self.right, self.third)))

    @property
    def least_pairs(self) -> int:
        """Pairs of a deploy for a verdict; with three sides, each two meet in a third of the
        pairs."""
        return LEAST_PAIRS * (len(self.sides) * (len(self.sides) - 1) // 2)

    @property
    def arrangements(self) -> list[tuple[int, ...]]:
        """Every arrangement of streams on sides: first by number, then with two of them swapped.
        Each lists the side of stream 0, of stream 1, and so on."""
        plain = list(range(len(self.sides)))
        swaps = [tuple(plain)]
        for one, other in combinations(plain, 2):
            swapped = plain.copy()
            swapped[one], swapped[other] = other, one
            swaps.append(tuple(swapped))
        return swaps

    def arrangement(self, block: int) -> int:
        """The arrangement in a block; the other block of a pair has the other one."""
        pair, half = divmod(block, 2)
        drawn = hashlib.blake2b(f"{self.seed}/{pair}".encode(), digest_size=1).digest()[0] & 1
        if not drawn ^ half:
            return 0
        one, other = (SIDES.index(side) for side in swapping(pair, len(self.sides)))
        return 1 + list(combinations(range(len(self.sides)), 2)).index((one, other))

    def side_of(self, block: int, stream: int) -> int:
        """The side, from 0, that serves a stream in a block."""
        return self.arrangements[self.arrangement(block)][stream]

    def first_block(self, now: int) -> int:
        """The first block of a pair that begins at least two blocks after a time. [ns since
        1970]"""
        length = self.block_s * 10**9
        soonest = -(-now // length) + 2
        return soonest + soonest % 2


@dataclass(frozen=True, slots=True)
class Slot:
    """One block: its begin, its arrangement, and the side of each stream."""

    block: int
    begins: str
    arrangement: int
    streams: tuple[str, ...]

    def __str__(self) -> str:
        """The block as a line."""
        where = ", ".join(f"stream {n} {side}" for n, side in enumerate(self.streams))
        return f"block {self.block} from {self.begins}: {where}"


def schedule(swap: Swap, first: int, hours: float) -> list[Slot]:
    """All blocks from the first one, for a period; complete pairs only."""
    count = 2 * max(1, round(hours * 1800 / swap.block_s))
    slots = []
    for block in range(first, first + count):
        at = datetime.fromtimestamp(block * swap.block_s, UTC).isoformat()
        sides = tuple(SIDES[swap.side_of(block, n)] for n in range(len(swap.sides)))
        slots.append(Slot(block, at, swap.arrangement(block), sides))
    return slots


def crossover_policy(
    policies: Sequence[StoredPolicy],
    swap: Swap,
    *,
    now: int,
    default_k: int | None = None,
    pairs: int | None = None,
    author: str = "",
    **words: Any,
) -> dict[str, Any]:
    """The policy under which hooks number the blocks; the table in force stays.

    pairs: number of pairs after which it ends; None for no end. author, words: as in `next_table`.

    Raises UsageError if no table is in force and default_k is not given.
    """
    table = table_in_force(policies, now, default_k)
    if table is None:
        raise UsageError("no table is in force: give the present draft length as --default-k")
    first = swap.first_block(now)
    if pairs is not None:
        words |= until(first, 2 * pairs, table)
    body = next_table(policies, table, now=now, author=author, **words)
    return checked(
        {
            **body,
            "kind": "blocks",
            "seed": secrets.randbits(63),
            "arms": [{"name": "current"}],
            "block_ms": 1000 * swap.block_s,
            "burn_in_ms": 250 * swap.block_s,
            "first_pair": first,
            "share": 1.0,
            "crossover": {
                "left": list(swap.left),
                "right": list(swap.right),
                **({"third": list(swap.third)} if swap.third else {}),
                "seed": swap.seed,
                "differs": list(swap.differs),
            },
        }
    )


def check_sides(swap: Swap, boots: Iterable[Boot]) -> list[str]:
    """Notes to read before a crossover begins. boots: rows of `boot`.

    Raises UsageError if the newest starts of two sides differ in an undeclared part.
    """
    newest: dict[str, Boot] = {}
    for boot in sorted(boots, key=lambda boot: boot["started_at"]):
        newest[boot["replica"]] = boot
    stood = [[newest[name] for name in side if name in newest] for side in swap.sides]
    for one, other in combinations(stood, 2):
        for part, values in undeclared(one, other, swap.differs).items():
            raise UsageError(
                f"the sides differ in {part}, {' and '.join(values)}: declare it with --differs "
                f"{part}, or start them equally"
            )
    if all(stood) and all(speculates(boot) for side in stood for boot in side):
        return [
            "no side decodes target-only: a verdict needs a deploy with one side started without "
            "speculation"
        ]
    return []


def swap_map(slots: Sequence[Slot]) -> str:
    """HAProxy's map from a block to its arrangement."""
    return "".join(f"{slot.block} {slot.arrangement}\n" for slot in slots)


def sides_map(swap: Swap) -> str:
    """HAProxy's map from an arrangement and a stream to the side; 0 is left."""
    return "".join(
        f"{len(swap.sides) * number + stream} {side}\n"
        for number, sides in enumerate(swap.arrangements)
        for stream, side in enumerate(sides)
    )


def haproxy(swap: Swap, addresses: Mapping[str, str], folder: str = "/etc/haproxy") -> str:
    """An HAProxy configuration that swaps by the clock. addresses: host:port of replicas, if
    known."""
    count = len(swap.sides)
    backends = "\n".join(
        _backend(f"specscope_{side}", replicas, addresses)
        for side, replicas in zip(SIDES, swap.sides, strict=False)
    )
    uses = "".join(
        f"    use_backend specscope_{side} if {{ var(txn.side) -m int {number} }}\n"
        for number, side in enumerate(SIDES[: count - 1])
    )
    return f"""\
frontend specscope_crossover
    mode http
    bind :8000
    # A stream is a part of the clients, or of the sessions where they name one.
    http-request set-var(txn.stream) src,crc32(1),mod({count})
    http-request set-var(txn.stream) req.hdr(x-session-id),crc32(1),mod({count}) \
if {{ req.hdr(x-session-id) -m found }}
    # Blocks are numbered by time; the maps say where each stream goes.
    http-request set-var(txn.swap) date,div({swap.block_s}),map_int_int({folder}/{MAP},0)
    http-request set-var(txn.place) var(txn.swap),mul({count}),add(txn.stream)
    http-request set-var(txn.side) var(txn.place),map_int_int({folder}/{SIDES_MAP},0)
{uses}    default_backend specscope_{SIDES[count - 1]}

{backends}"""


def nginx(swap: Swap, addresses: Mapping[str, str]) -> str:
    """An nginx configuration. At each block's begin, replace `specscope-swap.conf` and reload to
    swap the streams."""
    names = SIDES[: len(swap.sides)]
    shares = {2: "50% 0; * 1;", 3: "33.4% 0; 33.3% 1; * 2;"}[len(names)]
    choices = "".join(
        f'#   map "" $specscope_swap {{ default {number}; }}     '
        + ", ".join(f"stream {n} {names[side]}" for n, side in enumerate(sides))
        + "\n"
        for number, sides in enumerate(swap.arrangements)
    )
    places = "".join(
        f"    {stream}{number} specscope_{names[side]};\n"
        for number, sides in enumerate(swap.arrangements)
        for stream, side in enumerate(sides)
    )
    upstreams = "\n".join(
        _upstream(f"specscope_{side}", replicas, addresses)
        for side, replicas in zip(SIDES, swap.sides, strict=False)
    )
    return f"""\
# In http {{}}. specscope-swap.conf is one line, by the schedule:
{choices}include specscope-swap.conf;
split_clients "$remote_addr $http_x_session_id" $specscope_stream {{ {shares} }}
map "$specscope_stream$specscope_swap" $specscope_side {{
{places}}}
{upstreams}
server {{
    listen 8000;
    location / {{ proxy_pass http://$specscope_side; proxy_buffering off; }}
}}
"""


def _backend(name: str, replicas: Sequence[str], addresses: Mapping[str, str]) -> str:
    lines = [f"backend {name}", "    mode http", "    balance random"]
    lines += [f"    server {r} {addresses.get(r, f'{r}:8000')}" for r in replicas]
    return "\n".join(lines) + "\n"


def _upstream(name: str, replicas: Sequence[str], addresses: Mapping[str, str]) -> str:
    servers = " ".join(f"server {addresses.get(r, f'{r}:8000')};" for r in replicas)
    return f"upstream {name} {{ random; {servers} }}"
