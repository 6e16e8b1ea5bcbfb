"""The sides of a crossover by router: the replicas of each side, and their configurations.

The policy of a crossover has one arm, `current`, so hooks number the blocks and change nothing. It
names the replicas of each side. A replica's configuration follows from its boot and from its
proposals: under a policy an engine may draft less than it could.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from specscope.evaluate.experiment.blocks import BASELINE, BlockTime, LeftOut
from specscope.evaluate.experiment.crossover import (
    CLEAN,
    CURRENT,
    SCHEDULE,
    SIDES,
    Side,
    kind_of,
)
from specscope.evaluate.verdict.crossover import Crossing
from specscope.evidence.differences import columns_of, declared, lossy, suffix, undeclared
from specscope.policy.stored import says_closed_loop

Policies = Mapping[int, Mapping[str, Any]]
Boots = Mapping[tuple[str, str], Mapping[str, Any]]
Start = tuple[int, str, str]
"""Policy, replica and boot."""
SAME = (
    "engine", "engine_version", "target", "quantisation", "tensor_parallel", "pipeline_parallel",
    "data_parallel", "expert_parallel", "gpu_type", "driver",
)  # fmt: skip
"""What both sides must share, but for what the crossover declares to differ."""

# Text that ends shortens a round's drafts. What lies below this share of the longest draft is
# a table's doing.
NEARLY_ALWAYS = 0.9


def sides_of(policies: Policies) -> dict[int, dict[str, Side]]:
    """The side of each replica, by the number of each crossover's policy."""
    found: dict[int, dict[str, Side]] = {}
    for number, body in policies.items():
        named = body.get("crossover")
        if isinstance(named, dict):
            sides: dict[str, Side] = {}
            for side in SIDES:
                for replica in named.get(side) or ():
                    sides[str(replica)] = side
            found[number] = sides
    return found


def without_crossovers(blocks: Iterable[BlockTime], policies: Policies) -> list[BlockTime]:
    """Blocks of all other experiments."""
    numbers = sides_of(policies)
    return [block for block in blocks if block.policy not in numbers]


def crossings(
    blocks: Sequence[BlockTime], policies: Policies, boots: Iterable[Mapping[str, Any]]
) -> list[Crossing]:
    """Each crossover on each kind of engine. boots: rows of `boot`.

    Runs of the same two sides form one crossover, whichever side was called left. The effect of the
    hardware is known only after the configurations were swapped.
    """
    by_boot = {(boot["replica"], boot["boot"]): boot for boot in boots}
    sides, same = sides_of(policies), dict[frozenset[frozenset[str]], int]()
    for number in sorted(sides):
        same.setdefault(_groups(sides[number]), number)
    found: dict[int, dict[Start, list[BlockTime]]] = {}
    for block in dict.fromkeys(blocks):
        mine = sides.get(block.policy, {})
        if block.replica in mine and (block.replica, block.boot) in by_boot:
            start = block.policy, block.replica, block.boot
            found.setdefault(same[_groups(mine)], defaultdict(list))[start].append(block)
    return [
        _crossing(starts, sides[first], policies, by_boot)
        for first in sorted(found)
        for starts in _by_kind(found[first], sides[first], policies, by_boot)
    ]


def _by_kind(
    starts: Mapping[Start, list[BlockTime]],
    sides: Mapping[str, Side],
    policies: Policies,
    by_boot: Boots,
) -> list[Mapping[Start, list[BlockTime]]]:
    """The boots of each kind of engine.

    If no kind ran on all sides of a policy, its boots come together at the end, so that their
    differences can be named.
    """
    kinds: dict[int, dict[str, list[Start]]] = defaultdict(lambda: defaultdict(list))
    for start in sorted(starts):
        parts = columns_of(declared(policies[start[0]]))
        boot = by_boot[start[1:]]
        kind = str(tuple(boot.get(name) for name in SAME if name not in parts))
        kinds[start[0]][kind].append(start)
    alike: dict[str, dict[Start, list[BlockTime]]] = defaultdict(dict)
    apart: dict[Start, list[BlockTime]] = {}
    for by_kind in kinds.values():
        stood = [{sides[start[1]] for start in group} for group in by_kind.values()]
        met = any(one == set().union(*stood) for one in stood)
        for kind, group in by_kind.items():
            (alike[kind] if met else apart).update((start, starts[start]) for start in group)
    return [*(alike[kind] for kind in sorted(alike)), *([apart] if apart else [])]


def _groups(sides: Mapping[str, Side]) -> frozenset[frozenset[str]]:
    """The groups of replicas, independent of the names of the sides."""
    return frozenset(
        frozenset(replica for replica, one in sides.items() if one == side) for side in SIDES
    )


def _crossing(
    starts: Mapping[Start, Sequence[BlockTime]],
    sides: Mapping[str, Side],
    policies: Policies,
    by_boot: Boots,
) -> Crossing:
    """starts: blocks by policy, replica and boot, because a boot's configuration may change with
    the policy."""
    every = [by_boot[boot] for boot in dict.fromkeys(start[1:] for start in sorted(starts))]
    parts = tuple(
        dict.fromkeys(part for start in sorted(starts) for part in declared(policies[start[0]]))
    )
    ran = {
        start: configuration(by_boot[start[1:]], starts[start], policies[start[0]])
        + suffix(by_boot[start[1:]], every, parts)
        for start in sorted(starts)
    }
    hidden = _undeclared(ran, sides, policies, by_boot)
    ambiguous = {} if hidden else _ambiguous(ran, by_boot)
    names: dict[tuple[str, str], set[str]] = defaultdict(set)
    for start, name in ran.items():
        names[start[1:]].add(name)
    return Crossing(
        policies=tuple(sorted({start[0] for start in ran})),
        sides=sides,
        blocks=tuple(
            replace(
                block,
                arm=name,
                void=block.void or _void(name, ambiguous, hidden),
            )
            for start, name in ran.items()
            for block in starts[start]
        ),
        ran={boot: name for boot, (name, *more) in names.items() if not more},
        ambiguous=ambiguous,
        cache=_cache(ran, by_boot),
        undeclared=hidden,
        lossy={name: rule for start, name in ran.items() if (rule := lossy(by_boot[start[1:]]))},
        closed_loop=any(says_closed_loop(policies[start[0]]) for start in ran),
    )


def _undeclared(
    ran: Iterable[Start], sides: Mapping[str, Side], policies: Policies, by_boot: Boots
) -> dict[str, tuple[str, ...]]:
    """Differences between the sides that the policy does not declare."""
    found: dict[str, tuple[str, ...]] = {}
    by_policy: dict[int, list[Start]] = defaultdict(list)
    for start in ran:
        by_policy[start[0]].append(start)
    for number, starts in by_policy.items():
        # A boot at a time: what a side ran before a deploy never met the other side's later one.
        stood = [
            [by_boot[start[1:]] for start in starts if sides[start[1]] == side] for side in SIDES
        ]
        for one, other in combinations(filter(None, stood), 2):
            found |= undeclared(one, other, declared(policies[number]))
    return found


def _void(
    name: str, ambiguous: Mapping[str, object], hidden: Mapping[str, object]
) -> LeftOut | None:
    if hidden:
        return LeftOut.UNDECLARED
    return LeftOut.AMBIGUOUS if name in ambiguous else None


def _cache(ran: Mapping[Start, str], by_boot: Boots) -> dict[str, int]:
    """KV-cache capacity of each configuration in tokens, if its boots agree."""
    rooms: dict[str, set[int | None]] = defaultdict(set)
    for start, name in ran.items():
        boot = by_boot[start[1:]]
        blocks, size = boot.get("cache_blocks"), boot.get("block_size")
        rooms[name].add(blocks * size if blocks and size else None)
    return {name: room for name, (room, *more) in rooms.items() if room and not more}


def configuration(
    boot: Mapping[str, Any], blocks: Sequence[BlockTime], policy: Mapping[str, Any]
) -> str:
    """The configuration of one boot in its blocks under a policy.

    `clean`: no speculation. `schedule`: draft lengths by batch, from the engine's start settings.
    `k0`: no proposals. `current`: the policy's cells shortened some drafts. `k4`: otherwise, with
    the longest draft; a policy may limit it.
    """
    if boot["method"] == "none":
        return CLEAN
    if boot.get("k_schedule"):
        return SCHEDULE
    proposed = sum(block.proposed for block in blocks)
    if not proposed:
        return BASELINE
    longest = max(block.k for block in blocks)
    rounds = sum(block.request_rounds for block in blocks)
    if policy.get("table") and proposed < NEARLY_ALWAYS * longest * rounds:
        return CURRENT
    return f"k{longest}"


def _ambiguous(ran: Mapping[Start, str], by_boot: Boots) -> dict[str, tuple[str, ...]]:
    """Names that cover two different configurations, with these configurations."""
    meant: dict[str, set[str]] = defaultdict(set)
    for start, name in ran.items():
        boot = by_boot[start[1:]]
        if kind_of(name) != CLEAN:
            said = [boot["method"], boot.get("draft"), boot.get("k_schedule")]
            meant[name].add(" ".join(str(word) for word in said if word))
    return {name: tuple(sorted(ways)) for name, ways in meant.items() if len(ways) > 1}
