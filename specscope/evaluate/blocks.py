"""Blocks: stretches on one replica in which one arm served every request.

Blocks are the unit of randomisation and pairs of blocks the unit of inference: requests that
share a batch share its time. The two records mirror the store's block rollups. A pair that
cannot be compared is left out with a reason and counted, never repaired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any

BASELINE = "k0"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTime:
    """What one arm's block took and yielded, over all its rounds. Unknown times are None.

    void: why its pair must not be compared, in words; empty where it may. merged: how many blocks
    of like replicas at one time it adds up. Neither is a stored column.
    """

    epoch: str
    policy: int
    replica: str
    boot: str
    pair: int
    arm: str
    requests: int
    rounds: int
    request_rounds: int
    classes: tuple[str, ...]
    k: int
    wall_us: float
    draft_us: float | None = None
    verify_us: float | None = None
    sample_us: float | None = None
    idle_us: float | None = None
    catchup_us: float | None = None
    prefill_us: float | None = None
    n_q: int = 0
    n_kv: int = 0
    proposed: int = 0
    accepted: int = 0
    emitted: int = 0
    prefill_tokens: int = 0
    padded_tokens: int = 0
    first_at: int = 0
    last_at: int = 0
    gap_bins: tuple[int, ...] = ()
    gap_counts: tuple[int, ...] = ()
    tpot_bins: tuple[int, ...] = ()
    tpot_counts: tuple[int, ...] = ()
    full_tokens: int | None = None
    invalid: int | None = None
    preempted: int | None = None
    model_bytes: int | None = None
    dram_busy_us: float | None = None
    dram_seen_us: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    ended_requests: int | None = None
    output_tokens: int | None = None
    ttft_us: float | None = None
    first_tokens: int | None = None
    void: str = ""
    merged: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPart:
    """What one kind of request did in a block: counts only, since time is shared."""

    epoch: str
    policy: int
    replica: str
    boot: str
    pair: int
    arm: str
    class_: str
    context_bucket: str
    output_bucket: str
    k: int
    request_rounds: int
    proposed: int
    accepted: int
    emitted: int
    tested: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    censored: int = 0
    requests: int = 0
    kinds: tuple[str, ...] = ()
    kind_rounds: tuple[int, ...] = ()
    kind_emitted: tuple[int, ...] = ()
    kind_tested: tuple[int, ...] = ()
    kind_kept: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """Traffic that a verdict is about. None: more than one kind ran together.

    load: requests offered per block of the pair, as a bucket, and never the realised batch of
    open traffic, which the arm itself changes; in a closed loop the clients asking at once.
    """

    class_: str | None = None
    context: str | None = None
    output: str | None = None
    load: str | None = None

    def __str__(self) -> str:
        named = [self.class_ or "all classes"]
        named += [text for text in (self.context, self.output) if text]
        return " ".join(named) + (f" at load {self.load}" if self.load else "")


PairKey = tuple[str, int, str, str, int]

LOAD_EDGES = ((1, "1"), (4, "2-4"), (16, "5-16"), (64, "17-64"), (256, "65-256"))


def load_bucket(requests: float) -> str:
    """Bucket of the requests offered in a block."""
    for edge, name in LOAD_EDGES:
        if requests <= edge:
            return name
    return "257+"


def pair_key(row: BlockTime | BlockPart) -> PairKey:
    """What the blocks of one pair share."""
    return row.epoch, row.policy, row.replica, row.boot, row.pair


@dataclass(frozen=True, slots=True)
class Pair:
    """The blocks of one pair by arm, and what ran in them."""

    key: PairKey
    blocks: Mapping[str, BlockTime]
    parts: Mapping[str, tuple[BlockPart, ...]]
    segment: Segment


def pairs_of(
    blocks: Iterable[BlockTime], parts: Iterable[BlockPart], *, closed_loop: bool = False
) -> list[Pair]:
    """Group block rows into pairs, in the order of their keys.

    A row delivered twice counts once; rows of one block (a block split over deliveries) are
    added. Blocks without time or tokens, and blocks outside an experiment (pair 0 of policy
    0), are left out. closed_loop: clients wait for their answers, so their number is the load.
    """
    times: dict[PairKey, dict[str, list[BlockTime]]] = defaultdict(lambda: defaultdict(list))
    for block in dict.fromkeys(_known(block) for block in blocks):
        if block.arm and (block.policy or block.pair):
            times[pair_key(block)][block.arm].append(block)
    kinds: dict[PairKey, dict[str, list[BlockPart]]] = defaultdict(lambda: defaultdict(list))
    for part in dict.fromkeys(parts):
        kinds[pair_key(part)][part.arm].append(part)
    pairs = []
    for key in sorted(times):
        merged = {arm: merge_blocks(rows) for arm, rows in sorted(times[key].items())}
        whole = {arm: block for arm, block in merged.items() if _measured(block)}
        if whole:
            rows = {arm: tuple(kinds[key].get(arm, ())) for arm in whole}
            pairs.append(Pair(key, whole, rows, segment_of(whole, rows, closed_loop)))
    return pairs


def _known(block: BlockTime) -> BlockTime:
    """The block with None for every time that is not a number."""
    odd: dict[str, Any] = {
        name: None
        for name in _TIMES
        if (time := getattr(block, name)) is not None and not isfinite(time)
    }
    return replace(block, **odd) if odd else block


def _measured(block: BlockTime) -> bool:
    """Whether a block has a time and tokens; a store may hold NULL or worse for either."""
    wall = block.wall_us
    return wall is not None and isfinite(wall) and wall >= _SHORTEST_US and block.emitted > 0


def merge_blocks(rows: Sequence[BlockTime]) -> BlockTime:
    """One block from its rows: sums of counts and times, joint classes, widest span.

    A time unknown in one row is unknown in the whole.
    """
    first = rows[0]
    if len(rows) == 1:
        return first
    changes: dict[str, Any] = {}
    for name in _SUMMED:
        values = [getattr(row, name) for row in rows]
        changes[name] = None if any(v is None for v in values) else sum(values)
    for kind in ("gap", "tpot"):
        bins, counts = _merge_histograms(rows, f"{kind}_bins", f"{kind}_counts")
        changes |= {f"{kind}_bins": bins, f"{kind}_counts": counts}
    changes["classes"] = tuple(sorted({name for row in rows for name in row.classes}))
    changes["k"] = max(row.k for row in rows)
    changes["void"] = next((row.void for row in rows if row.void), "")
    changes["first_at"] = min(row.first_at for row in rows)
    changes["last_at"] = max(row.last_at for row in rows)
    return replace(first, **changes)


def segment_of(
    blocks: Mapping[str, BlockTime],
    parts: Mapping[str, Sequence[BlockPart]],
    closed_loop: bool = False,
) -> Segment:
    """The traffic of a pair: a bucket where (nearly) all its requests share it, else None."""
    classes = {name for block in blocks.values() for name in block.classes}
    rows = [part for kinds in parts.values() for part in kinds]
    offered = sum(b.requests for b in blocks.values()) / sum(b.merged for b in blocks.values())
    if closed_loop:
        # A faster arm is asked more; how many ask at once is the clients' to say, or the slots'.
        rounds = sum(block.rounds for block in blocks.values())
        offered = round(sum(b.request_rounds for b in blocks.values()) / max(1, rounds))
    return Segment(
        class_=classes.pop() if len(classes) == 1 else None,
        context=_shared(rows, "context_bucket"),
        output=_shared(rows, "output_bucket"),
        load=load_bucket(offered),
    )


def arm_k(arm: str) -> int | None:
    """Draft length of a fixed arm: `k4` is 4; None for arms that follow a table."""
    return int(arm[1:]) if arm[:1] == "k" and arm[1:].isdigit() else None


_TIMES = tuple(field.name for field in fields(BlockTime) if field.name.endswith("_us"))
_SUMMED = tuple(
    field.name
    for field in fields(BlockTime)
    if field.name.endswith(("_us", "_tokens"))
    or field.name in {"requests", "rounds", "request_rounds", "n_q", "n_kv"}
    or field.name in {"proposed", "accepted", "emitted", "invalid", "preempted"}
    or field.name in {"model_bytes", "ended_requests"}
)

# No block of a real engine is over within a nanosecond.
_SHORTEST_US = 1e-3

# A pair belongs to a bucket when this share of its request-rounds does.
_NEARLY_ALL = 0.9


def _shared(parts: Sequence[BlockPart], name: str) -> str | None:
    weights: dict[str, int] = defaultdict(int)
    for part in parts:
        weights[getattr(part, name)] += part.request_rounds
    if not weights:
        return None
    largest = max(sorted(weights), key=lambda bucket: weights[bucket])
    return largest if weights[largest] >= _NEARLY_ALL * sum(weights.values()) else None


def _merge_histograms(
    rows: Sequence[BlockTime], bins: str, counts: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    merged: dict[int, int] = defaultdict(int)
    for row in rows:
        for index, count in zip(getattr(row, bins), getattr(row, counts), strict=True):
            merged[index] += count
    ordered = sorted(merged)
    return tuple(ordered), tuple(merged[index] for index in ordered)
