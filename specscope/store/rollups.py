"""The rollup tables, with each column declared once.

There are three grains: block (experiments), minute and hour. A row replaces an earlier one of the
same key by its `version`, so rolling is idempotent. Histograms are logarithmic, bin = ceil(ln(ms) /
ln(1.01 / 0.99)), because they merge exactly and give ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specscope_hook.columns import column

VERSION = "batches in the ledger when it was computed, plus 2^61; the highest is kept"
VERSION_BASE = 1 << 61  # above every clock's ns that an earlier version wrote
EPOCH = "hash of engine, versions, models and hardware; empty if the boot is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfBlock:
    """The key of a block."""

    epoch: str = column("label", "1", EPOCH)
    policy: int = column("u32", "1", "policy in force")
    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "identifier of the process's start")
    pair: int = column("u32", "1", "pair of blocks")
    arm: str = column("label", "1", "arm that ran")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTimeRow(_OfBlock):
    """A block: what the whole replica did in it, after its burn-in."""

    requests: int = column("u64", "requests", "requests admitted in the block")
    rounds: int = column("u64", "rounds", "number of rounds")
    request_rounds: int = column("u64", "rounds", "sum of `batch` over the rounds")
    classes: list[str] = column("label[]", "1", "classes that ran in the block, sorted")
    k: int = column("u8", "tokens", "longest draft in the block")
    wall_us: float | None = column("f64?", "us", "wall time, sum over the rounds")
    draft_us: float | None = column("f64?", "us", "time of the drafter, sum over the rounds")
    verify_us: float | None = column("f64?", "us", "time of the target's forward passes, sum")
    sample_us: float | None = column("f64?", "us", "time of acceptance and bookkeeping, sum")
    idle_us: float | None = column("f64?", "us", "time in which the device was idle, sum")
    catchup_us: float | None = column("f64?", "us", "time of the drafter's prefill, sum")
    prefill_us: float | None = column(
        "f64?", "us", "time of the target's prefill within the rounds, sum"
    )
    n_q: int = column("u64", "tokens", "query tokens of the verify passes")
    n_kv: int = column("u64", "tokens", "sum of contexts over the rounds")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept, without correction or bonus")
    emitted: int = column("u64", "tokens", "tokens that the sequences really got")
    prefill_tokens: int = column("u64", "tokens", "prompt tokens computed within the rounds")
    padded_tokens: int = column("u64", "tokens", "query positions computed that no sequence needed")
    first_at: int = column("time", "ns", "when the first round began")
    last_at: int = column("time", "ns", "when the last round began")
    gap_bins: list[int] = column("i16[]", "1", "log-histogram of the time between chunks")
    gap_counts: list[int] = column("u64[]", "1", "chunks in each bin")
    tpot_bins: list[int] = column("i16[]", "1", "log-histogram of time per output token")
    tpot_counts: list[int] = column(
        "u64[]", "1", "requests in each bin; only those admitted well within the block"
    )
    full_tokens: int | None = column(
        "u64?", "tokens", "query positions if each sequence had drafted as long as the longest"
    )
    invalid: int | None = column("u64?", "tokens", "proposals that a grammar refused")
    preempted: int | None = column("u64?", "requests", "requests preempted")
    model_bytes: int | None = column("u64?", "bytes", "bytes that the rounds had to move")
    dram_busy_us: float | None = column(
        "f64?", "us", "time in which device memory was busy, over rounds for which it is known"
    )
    dram_seen_us: float | None = column("f64?", "us", "wall time of those rounds")
    prompt_tokens: int | None = column(
        "u64?", "tokens", "prompt tokens of requests admitted in the block"
    )
    cached_tokens: int | None = column("u64?", "tokens", "prompt tokens found in a prefix cache")
    ended_requests: int | None = column(
        "u64?", "requests", "requests admitted in the block that have ended"
    )
    output_tokens: int | None = column("u64?", "tokens", "output tokens of those requests")
    ttft_us: float | None = column("f64?", "us", "time from arrival to the first token, sum")
    first_tokens: int | None = column("u64?", "requests", "requests in the sum `ttft_us`")
    waiting: int | None = column("u64?", "requests", "requests in the queue, sum over the rounds")
    waiting_first: int | None = column(
        "u64?", "requests", "requests in the queue in the first round"
    )
    waiting_last: int | None = column("u64?", "requests", "requests in the queue in the last round")
    admitted_kinds: list[str] = column(
        "label[]",
        "1",
        "kinds of requests admitted after the burn-in: class, context and output bucket",
    )
    admitted_counts: list[int] = column("u64[]", "requests", "requests of each kind")
    computed_at: int | None = column("time?", "ns", "when it was computed, by the service's clock")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPartRow(_OfBlock):
    """What the requests of one segment did in a block, by draft length."""

    class_: str = column("label", "1", "operator's label of the requests")
    context_bucket: str = column("label", "1", "bucket of prompt tokens at admission")
    output_bucket: str = column("label", "1", "bucket of requested output tokens")
    k: int = column("u8", "tokens", "draft length")
    request_rounds: int = column("u64", "rounds", "rounds, counted for each request")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept, without correction or bonus")
    emitted: int = column("u64", "tokens", "tokens that the sequences really got")
    tested: list[int] = column("u64[]", "rounds", "rounds that tested each position")
    kept: list[int] = column("u64[]", "rounds", "rounds that kept the proposal at each position")
    censored: int = column(
        "u64", "rounds", "rounds that the end of the text cut before a proposal was refused"
    )
    requests: int = column("u64", "requests", "requests that took part")
    kinds: list[str] = column(
        "label[]",
        "1",
        "kinds of requests: adapter, and `guided` if a grammar applies; empty for plain",
    )
    kind_rounds: list[int] = column("u64[]", "rounds", "rounds of each kind")
    kind_emitted: list[int] = column("u64[]", "tokens", "tokens that requests of each kind got")
    kind_tested: list[int] = column(
        "u64[]", "rounds", "rounds of each kind that tested the first position"
    )
    kind_kept: list[int] = column(
        "u64[]", "rounds", "rounds of each kind that kept the first position"
    )
    computed_at: int | None = column("time?", "ns", "when it was computed, by the service's clock")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockClassRow(_OfBlock):
    """How long the requests of one class waited for their tokens in a block, whoever else ran."""

    class_: str = column("label", "1", "operator's label of the requests")
    requests: int = column("u64", "requests", "requests admitted in the block")
    tpot_bins: list[int] = column("i16[]", "1", "log-histogram of time per output token")
    tpot_counts: list[int] = column(
        "u64[]", "1", "requests in each bin; only those admitted well within the block"
    )
    computed_at: int | None = column("time?", "ns", "when it was computed, by the service's clock")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What the requests of one class did on one replica in a minute, by draft length."""

    minute: int = column("time", "ns", "start of the minute")
    replica: str = column("label", "1", "serving replica")
    class_: str = column("label", "1", "operator's label of the requests")
    k: int = column("u8", "tokens", "draft length")
    request_rounds: int = column("u64", "rounds", "rounds, counted for each request")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept, without correction or bonus")
    emitted: int = column("u64", "tokens", "tokens that the sequences really got")
    accepted_length: list[int] = column(
        "u64[]", "rounds", "rounds by accepted tokens; the first value counts rounds that kept none"
    )
    tested: list[int] = column("u64[]", "rounds", "rounds that tested each position")
    kept: list[int] = column("u64[]", "rounds", "rounds that kept the proposal at each position")
    context: int = column("u64", "tokens", "sum of contexts when the rounds began")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteTime:
    """Where the time of one replica's rounds went in a minute, by arm and longest draft."""

    minute: int = column("time", "ns", "start of the minute")
    replica: str = column("label", "1", "serving replica")
    arm: str | None = column("label?", "1", "arm that ran")
    k: int = column("u8", "tokens", "longest draft in the round")
    rounds: int = column("u64", "rounds", "number of rounds")
    batch: int = column("u64", "sequences", "sequences, sum over the rounds")
    waiting: int = column("u64", "requests", "requests in the queue, sum over the rounds")
    wall_us: float | None = column("f64?", "us", "wall time, sum over the rounds")
    draft_us: float | None = column("f64?", "us", "time of the drafter, sum over the rounds")
    verify_us: float | None = column("f64?", "us", "time of the target's forward passes, sum")
    sample_us: float | None = column("f64?", "us", "time of acceptance and bookkeeping, sum")
    idle_us: float | None = column("f64?", "us", "time in which the device was idle, sum")
    catchup_us: float | None = column("f64?", "us", "time of the drafter's prefill, sum")
    prefill_us: float | None = column(
        "f64?", "us", "time of the target's prefill within the rounds, sum"
    )
    n_q: int = column("u64", "tokens", "query tokens of the verify passes")
    n_kv: int = column("u64", "tokens", "sum of contexts over the rounds")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept, without correction or bonus")
    emitted: int = column("u64", "tokens", "tokens that the sequences really got")
    padded_tokens: int = column("u64", "tokens", "query positions computed that no sequence needed")
    model_bytes: int | None = column("u64?", "bytes", "bytes that the rounds had to move")
    wall_bins: list[int] = column("i16[]", "1", "log-histogram of the wall time of a round")
    wall_counts: list[int] = column("u64[]", "1", "rounds in each bin")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """What the requests of one class did in an hour, over all replicas of an epoch."""

    hour: int = column("time", "ns", "start of the hour")
    tenant: str = column("label", "1", "owner of the replicas; empty if none is known")
    epoch: str = column("label", "1", EPOCH)
    class_: str = column("label", "1", "operator's label of the requests")
    context_bucket: str = column("label", "1", "bucket of prompt tokens at admission")
    arm: str | None = column("label?", "1", "arm that ran")
    k: int = column("u8", "tokens", "draft length")
    request_rounds: int = column("u64", "rounds", "rounds, counted for each request")
    proposed: int = column("u64", "tokens", "draft tokens offered")
    accepted: int = column("u64", "tokens", "leading ones kept, without correction or bonus")
    emitted: int = column("u64", "tokens", "tokens that the sequences really got")
    tested: list[int] = column("u64[]", "rounds", "rounds that tested each position")
    kept: list[int] = column("u64[]", "rounds", "rounds that kept the proposal at each position")
    requests: int = column("u64", "requests", "requests that took part")
    version: int = column("u64", "1", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRow:
    """How far the store has come with a boot's batches; see `ledger`."""

    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "identifier of the process's start")
    of: str = column(
        "label", "1", "stored: last batch before a gap; seen: highest; rolled: last in the rollups"
    )
    number: int = column("u64", "1", "number of the batch; the highest is kept")
    next_seq: int = column(
        "u64", "1", "record number that follows the batch; 0 unless `of` is stored"
    )


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
