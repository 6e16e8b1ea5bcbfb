"""The router's part of a crossover: which side gets which stream in each block.

Blocks are numbered by time since 1970, as the hook numbers them, so a router that can divide the
time by a block's length needs nobody to tell it when to swap. Which stream begins a pair on the
left is a fair coin, drawn from the seed and the pair's number, known before the pair begins.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specscope.errors import UsageError
from specscope.evidence.differences import (
    COLUMNS,
    CONFIGURATION,
    Boot,
    declarable,
    speculates,
    undeclared,
)
from specscope.policy.stored import StoredPolicy, checked, next_table, table_in_force, until

MAP = "specscope-swap.map"
BLOCK_S = 240  # of a block, where nobody says otherwise


@dataclass(frozen=True, slots=True)
class Swap:
    """A crossover to be run. left, right: replicas; block_s: length of a block, whole seconds.

    differs: the parts in which the sides are meant to differ, besides speculation and its length.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    block_s: int
    seed: int = 1
    differs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.left or not self.right or set(self.left) & set(self.right):
            raise UsageError("a crossover needs replicas on both sides, none on both")
        if wrong := [part for part in self.differs if not declarable(part)]:
            raise UsageError(
                f"{wrong[0]!r} is nothing that sides may differ in: {', '.join(COLUMNS)}, or "
                f"{CONFIGURATION}KEY"
            )

    def swapped(self, block: int) -> bool:
        """Whether stream 0 goes to the right in a block; in the next of its pair it does not."""
        pair, half = divmod(block, 2)
        drawn = hashlib.blake2b(f"{self.seed}/{pair}".encode(), digest_size=1).digest()[0] & 1
        return bool(drawn ^ half)

    def first_block(self, now: int) -> int:
        """The first block of a pair that begins two blocks or more after a time. [ns since 1970]"""
        length = self.block_s * 10**9
        soonest = -(-now // length) + 2
        return soonest + soonest % 2


@dataclass(frozen=True, slots=True)
class Slot:
    """One block: when it begins, and where stream 0 and stream 1 go."""

    block: int
    begins: str
    stream_0: str
    stream_1: str


def schedule(swap: Swap, first: int, hours: float) -> list[Slot]:
    """All blocks from a first one on, for so long; whole pairs."""
    count = 2 * max(1, round(hours * 1800 / swap.block_s))
    slots = []
    for block in range(first, first + count):
        at = datetime.fromtimestamp(block * swap.block_s, UTC).isoformat()
        sides = ("right", "left") if swap.swapped(block) else ("left", "right")
        slots.append(Slot(block, at, *sides))
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

    pairs: blocks of two sides after which it ends by itself; None: it goes on. author, words: as in
    `next_table`.

    Raises UsageError where none is in force and default_k does not say what runs.
    """
    table = table_in_force(policies, now, default_k)
    if table is None:
        raise UsageError("no table is in force: --default-k says which draft length runs now")
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
                "seed": swap.seed,
                "differs": list(swap.differs),
            },
        }
    )


def check_sides(swap: Swap, boots: Iterable[Boot]) -> list[str]:
    """What to know before a crossover begins. boots: rows of `boot`.

    Raises UsageError if the newest starts of the two sides differ in an undeclared part.
    """
    newest: dict[str, Boot] = {}
    for boot in sorted(boots, key=lambda boot: boot["started_at"]):
        newest[boot["replica"]] = boot
    left, right = (
        [newest[name] for name in side if name in newest] for side in (swap.left, swap.right)
    )
    for part, values in undeclared(left, right, swap.differs).items():
        raise UsageError(
            f"the sides differ in {part}, {' and '.join(values)}: declare it with --differs "
            f"{part}, or start both sides alike"
        )
    if left and right and all(map(speculates, [*left, *right])):
        return [
            "no side decodes target-only: a verdict needs a deploy in which one does, started "
            "without speculation"
        ]
    return []


def swap_map(slots: Sequence[Slot]) -> str:
    """HAProxy's map: of each block, the side of stream 0; 0 is left."""
    return "".join(f"{slot.block} {int(slot.stream_0 == 'right')}\n" for slot in slots)


def haproxy(swap: Swap, addresses: Mapping[str, str], folder: str = "/etc/haproxy") -> str:
    """A configuration that swaps by the clock. addresses: of replicas, host:port where known."""
    return f"""\
frontend specscope_crossover
    mode http
    bind :8000
    # A stream is half of the clients, or of the sessions where they name one.
    http-request set-var(txn.stream) src,crc32(1),mod(2)
    http-request set-var(txn.stream) req.hdr(x-session-id),crc32(1),mod(2) \
if {{ req.hdr(x-session-id) -m found }}
    # Blocks are numbered by time; the map says where stream 0 goes.
    http-request set-var(txn.swap) date,div({swap.block_s}),map_int_int({folder}/{MAP},0)
    http-request set-var(txn.side) var(txn.swap),add(txn.stream),mod(2)
    use_backend specscope_left if {{ var(txn.side) -m int 0 }}
    default_backend specscope_right

{_backend("specscope_left", swap.left, addresses)}
{_backend("specscope_right", swap.right, addresses)}"""


def nginx(swap: Swap, addresses: Mapping[str, str]) -> str:
    """A configuration without a clock: another file in place of `specscope-swap.conf` and a reload
    at each block's beginning swap the streams."""
    return f"""\
# In http {{}}. specscope-swap.conf is one line, by the schedule:
#   map "" $specscope_swap {{ default 0; }}     stream 0 goes left
#   map "" $specscope_swap {{ default 1; }}     stream 0 goes right
include specscope-swap.conf;
split_clients "$remote_addr $http_x_session_id" $specscope_stream {{ 50% 0; * 1; }}
map "$specscope_stream$specscope_swap" $specscope_side {{
    00 specscope_left;
    11 specscope_left;
    default specscope_right;
}}
{_upstream("specscope_left", swap.left, addresses)}
{_upstream("specscope_right", swap.right, addresses)}
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
