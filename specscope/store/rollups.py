"""Tables that `roll` computes from the raw ones, each column once.

Three grains: the block (experiments), the minute, and the hour. A row replaces an earlier
one of the same key by its `version`, so rolling twice changes nothing. Histograms are
logarithmic, bin = ceil(ln(ms) / ln(1.01 / 0.99)), since they merge exactly and give ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specscope_hook.columns import column

VERSION = "batches in the ledger when it was computed, above 2^61; the higher one stands"
VERSION_BASE = 1 << 61  # above every clock's ns that an earlier version wrote
EPOCH = "hash of engine, versions, models and hardware; empty where the boot is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfBlock:
    """Which block it was."""

    epoch: str = column("label", "1", EPOCH)
    policy: int = column("u32", "1", "policy in force")
    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "start of it")
    pair: int = column("u32", "1", "pair of blocks")
    arm: str = column("label", "1", "arm that ran")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTimeRow(_OfBlock):
    """A block: what the whole replica did in it, after its burn-in."""

    requests: int = column("u64", "requests", "admitted in it")
    rounds: int = column("u64", "rounds", "in it")
    request_rounds: int = column("u64", "rounds", "sum of batch over its rounds")
    classes: list[str] = column("label[]", "1", "classes that ran in it, sorted")
    k: int = column("u8", "tokens", "longest draft in it")
    wall_us: float | None = column("f64?", "us", "sum over its rounds")
    draft_us: float | None = column("f64?", "us", "draft model, sum over its rounds")
    verify_us: float | None = column("f64?", "us", "target forward, sum over its rounds")
    sample_us: float | None = column("f64?", "us", "acceptance and bookkeeping, sum")
    idle_us: float | None = column("f64?", "us", "device idle between the parts, sum")
    catchup_us: float | None = column("f64?", "us", "draft prefill after rounds at k = 0, sum")
    prefill_us: float | None = column("f64?", "us", "target prefill within its rounds, sum")
    n_q: int = column("u64", "tokens", "query tokens of the verify passes")
    n_kv: int = column("u64", "tokens", "sum of contexts over its rounds")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept; correction or bonus not counted")
    emitted: int = column("u64", "tokens", "really came out")
    prefill_tokens: int = column("u64", "tokens", "prompt tokens computed within its rounds")
    padded_tokens: int = column("u64", "tokens", "query positions computed for nobody")
    first_at: int = column("time", "ns", "when its first round began")
    last_at: int = column("time", "ns", "when its last round began")
    gap_bins: list[int] = column("i16[]", "1", "log-histogram of the time between chunks")
    gap_counts: list[int] = column("u64[]", "1", "chunks in each bin")
    tpot_bins: list[int] = column("i16[]", "1", "log-histogram of time per output token")
    tpot_counts: list[int] = column(
        "u64[]", "1", "requests in each bin, of those admitted well within it"
    )
    full_tokens: int | None = column(
        "u64?", "tokens", "query positions if each sequence had drafted as long as the longest"
    )
    invalid: int | None = column("u64?", "tokens", "proposals that a grammar refused")
    preempted: int | None = column("u64?", "requests", "put back into the queue")
    model_bytes: int | None = column("u64?", "bytes", "that its rounds had to move")
    dram_busy_us: float | None = column(
        "f64?", "us", "that the device's memory was busy, over the rounds where it is known"
    )
    dram_seen_us: float | None = column("f64?", "us", "wall time of those rounds")
    prompt_tokens: int | None = column("u64?", "tokens", "of requests admitted in it")
    cached_tokens: int | None = column("u64?", "tokens", "of these found in a prefix cache")
    ended_requests: int | None = column("u64?", "requests", "admitted in it, and ended")
    output_tokens: int | None = column("u64?", "tokens", "of those, in all")
    ttft_us: float | None = column("f64?", "us", "from arrival to the first token, sum")
    first_tokens: int | None = column("u64?", "requests", "whose first token that sum counts")
    waiting: int | None = column("u64?", "requests", "queued, sum over its rounds")
    waiting_first: int | None = column("u64?", "requests", "queued in its first round")
    waiting_last: int | None = column("u64?", "requests", "queued in its last round")
    admitted_kinds: list[str] = column(
        "label[]",
        "1",
        "kinds of requests admitted in it after its burn-in: class, context and output bucket",
    )
    admitted_counts: list[int] = column("u64[]", "requests", "of each kind")
    computed_at: int | None = column("time?", "ns", "when it was computed, by the service's clock")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPartRow(_OfBlock):
    """What the requests of one segment did in a block, by draft length."""

    class_: str = column("label", "1", "operator's label of the requests")
    context_bucket: str = column("label", "1", "prompt tokens at admission, in a bucket")
    output_bucket: str = column("label", "1", "requested output tokens, in a bucket")
    k: int = column("u8", "tokens", "draft length")
    request_rounds: int = column("u64", "rounds", "in it, counted for each request")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept; correction or bonus not counted")
    emitted: int = column("u64", "tokens", "really came out")
    tested: list[int] = column(
        "u64[]", "rounds", "in which each position was at risk: all before it were kept"
    )
    kept: list[int] = column("u64[]", "rounds", "in which the proposal at each position was kept")
    censored: int = column(
        "u64", "rounds", "that the end of the text cut short, before a proposal was refused"
    )
    requests: int = column("u64", "requests", "that took part")
    kinds: list[str] = column(
        "label[]",
        "1",
        "adapters of its requests, `guided` added where a grammar constrains them; empty for plain",
    )
    kind_rounds: list[int] = column("u64[]", "rounds", "of each kind")
    kind_emitted: list[int] = column("u64[]", "tokens", "of each kind, came out")
    kind_tested: list[int] = column(
        "u64[]", "rounds", "of each kind that tested the first position"
    )
    kind_kept: list[int] = column("u64[]", "rounds", "of each kind that kept the first position")
    computed_at: int | None = column("time?", "ns", "when it was computed, by the service's clock")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockClassRow(_OfBlock):
    """How long the requests of one class waited for their tokens in a block, whoever else ran."""

    class_: str = column("label", "1", "operator's label of the requests")
    requests: int = column("u64", "requests", "admitted in it")
    tpot_bins: list[int] = column("i16[]", "1", "log-histogram of time per output token")
    tpot_counts: list[int] = column(
        "u64[]", "1", "requests in each bin, of those admitted well within it"
    )
    computed_at: int | None = column("time?", "ns", "when it was computed, by the service's clock")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What the requests of one class did on one replica in a minute, by draft length."""

    minute: int = column("time", "ns", "its start")
    replica: str = column("label", "1", "serving replica")
    class_: str = column("label", "1", "operator's label of the requests")
    k: int = column("u8", "tokens", "draft length")
    request_rounds: int = column("u64", "rounds", "in it, counted for each request")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept; correction or bonus not counted")
    emitted: int = column("u64", "tokens", "really came out")
    accepted_length: list[int] = column(
        "u64[]", "rounds", "by accepted tokens: the first value counts rounds that kept none"
    )
    tested: list[int] = column("u64[]", "rounds", "in which each position was at risk")
    kept: list[int] = column("u64[]", "rounds", "in which the proposal at each position was kept")
    context: int = column("u64", "tokens", "sum of contexts when the rounds began")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteTime:
    """Where the time of one replica's rounds went in a minute, by arm and longest draft."""

    minute: int = column("time", "ns", "its start")
    replica: str = column("label", "1", "serving replica")
    arm: str | None = column("label?", "1", "arm that ran")
    k: int = column("u8", "tokens", "longest draft in the round")
    rounds: int = column("u64", "rounds", "in it")
    batch: int = column("u64", "sequences", "sum over its rounds")
    waiting: int = column("u64", "requests", "queued, sum over its rounds")
    wall_us: float | None = column("f64?", "us", "sum over its rounds")
    draft_us: float | None = column("f64?", "us", "draft model, sum over its rounds")
    verify_us: float | None = column("f64?", "us", "target forward, sum over its rounds")
    sample_us: float | None = column("f64?", "us", "acceptance and bookkeeping, sum")
    idle_us: float | None = column("f64?", "us", "device idle between the parts, sum")
    catchup_us: float | None = column("f64?", "us", "draft prefill after rounds at k = 0, sum")
    prefill_us: float | None = column("f64?", "us", "target prefill within its rounds, sum")
    n_q: int = column("u64", "tokens", "query tokens of the verify passes")
    n_kv: int = column("u64", "tokens", "sum of contexts over its rounds")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept; correction or bonus not counted")
    emitted: int = column("u64", "tokens", "really came out")
    padded_tokens: int = column("u64", "tokens", "query positions computed for nobody")
    model_bytes: int | None = column("u64?", "bytes", "that its rounds had to move")
    wall_bins: list[int] = column("i16[]", "1", "log-histogram of the rounds' wall time")
    wall_counts: list[int] = column("u64[]", "1", "rounds in each bin")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """What the requests of one class did in an hour, over all replicas of an epoch."""

    hour: int = column("time", "ns", "its start")
    tenant: str = column("label", "1", "owner of the replicas; empty where none is known")
    epoch: str = column("label", "1", EPOCH)
    class_: str = column("label", "1", "operator's label of the requests")
    context_bucket: str = column("label", "1", "prompt tokens at admission, in a bucket")
    arm: str | None = column("label?", "1", "arm that ran")
    k: int = column("u8", "tokens", "draft length")
    request_rounds: int = column("u64", "rounds", "in it, counted for each request")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept; correction or bonus not counted")
    emitted: int = column("u64", "tokens", "really came out")
    tested: list[int] = column("u64[]", "rounds", "in which each position was at risk")
    kept: list[int] = column("u64[]", "rounds", "in which the proposal at each position was kept")
    requests: int = column("u64", "requests", "that took part")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRow:
    """How far the store has come with a boot's batches; see `ledger`."""

    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "start of it")
    of: str = column(
        "label",
        "1",
        "stored: last batch without a gap; seen: highest batch; rolled: last that rollups count",
    )
    number: int = column("u64", "1", "of the batch; the higher one stands")
    next_seq: int = column("u64", "1", "record number that follows it; 0 but of stored")


ROLLUPS: dict[str, type[Any]] = {
    "block_time": BlockTimeRow,
    "block_part": BlockPartRow,
    "block_class": BlockClassRow,
    "minute": Minute,
    "minute_time": MinuteTime,
    "hour": Hour,
    "position": PositionRow,
}
"""Computed records by table."""
