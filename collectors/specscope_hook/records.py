"""Every stored record, each column once: its name, type, unit and meaning.

Ring payloads, Arrow schemas, ClickHouse tables, column comments and the data dictionary are derived
from these classes and from `ring_records`; nothing else declares a column. Changes are additive: a
missing column reads as NULL, an unknown one is counted and dropped. `columns` describes the
notation. A trailing underscore is not part of the stored name.

`Boot` to `Loss` come from the sidecar. People and the service write `Policy`, `Event` and
`Assessment`. `Batch` is the ledger of stored batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specscope_hook.columns import column


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBoot:
    """The start of a serving process that a row belongs to."""

    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "identifier of the process's start")


@dataclass(frozen=True, kw_only=True)
class RoundMeasures:
    """Measures of a round that the ring carries and the store keeps as they are.

    An unknown time is NaN on the ring and NULL in the store.
    """

    started_at: int = column("time", "ns", "when the round began")
    waiting: int = column("u32", "requests", "waiting in the queue")
    wall_us: float = column(
        "f32?", "us", "from the end of the last round to its end; after idling, from its start"
    )
    draft_us: float = column("f32?", "us", "time of the drafter")
    verify_us: float = column("f32?", "us", "time of the target's forward pass")
    sample_us: float = column("f32?", "us", "time of acceptance, sampling and bookkeeping")
    idle_us: float = column("f32?", "us", "time in which the device was idle between the parts")
    catchup_us: float = column("f32?", "us", "time of the drafter's prefill")
    prefill_us: float = column("f32?", "us", "time of the target's prefill, inside the wall time")
    prefill_tokens: int = column("u32", "tokens", "prompt tokens computed within the round")
    padded_tokens: int = column("u32", "tokens", "query positions computed that no sequence needed")
    invalid: int = column("u32", "tokens", "proposals that a grammar refused")
    preempted: int = column("u16", "requests", "preempted in the round")


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One start of one serving process, with everything that defines it."""

    replica: str = column("label", "1", "name of the serving replica")
    boot: str = column("text", "1", "random identifier of this start")
    started_at: int = column("time", "ns", "when the hook attached")
    host: str = column("label", "1", "name of the machine")
    engine: str = column("label", "1", "serving engine")
    engine_version: str = column("label", "1", "version of the engine")
    hook_version: str = column("label", "1", "version of this hook")
    epoch: str = column(
        "label", "1", "hash of engine, versions, models and hardware; no verdict mixes two"
    )
    target: str = column("label", "1", "target model")
    draft: str | None = column("label?", "1", "draft model, if there is one")
    quantisation: str | None = column("label?", "1", "quantisation of the target's weights")
    method: str = column("label", "1", "speculation: none, draft_model, ngram, eagle, mtp, …")
    k_max: int = column("u8", "tokens", "longest draft that the engine can run")
    k_schedule: str | None = column(
        "label?",
        "1",
        "draft lengths by batch size that the engine was started with, in its own notation; none "
        "if it has a single one",
    )
    tensor_parallel: int = column("u16", "1", "size of the tensor-parallel group")
    pipeline_parallel: int = column("u16", "1", "number of pipeline stages")
    data_parallel: int = column("u16", "1", "number of data-parallel ranks")
    expert_parallel: int = column("u16", "1", "size of the expert-parallel group")
    rank: int = column("u16", "1", "data-parallel rank of this process")
    role: str = column("label", "1", "prefill, decode or both")
    gpu_uuids: list[str] = column("text[]", "1", "devices that the process uses; empty on a CPU")
    gpu_type: str | None = column("label?", "1", "name of the device")
    driver: str | None = column("label?", "1", "version of the device's driver")
    parameters: int | None = column("u64?", "1", "parameters of the target")
    active_parameters: int | None = column("u64?", "1", "parameters that one token uses")
    bytes_per_weight: float | None = column("f32?", "bytes", "size of a weight on the device")
    kv_bytes_per_token: int | None = column("u32?", "bytes", "cache of the target, all layers")
    layers: int | None = column("u16?", "1", "layers of the target")
    experts: int | None = column("u16?", "1", "experts of the target; 0 if dense")
    draft_parameters: int | None = column("u64?", "1", "parameters of the draft model")
    draft_bytes_per_weight: float | None = column("f32?", "bytes", "size of a weight of the draft")
    draft_kv_bytes_per_token: int | None = column("u32?", "bytes", "cache of the draft, all layers")
    cache_blocks: int | None = column("u32?", "1", "blocks of the key-value cache, in total")
    block_size: int | None = column("u32?", "tokens", "size of one block of the cache")
    largest_batch: int | None = column("u32?", "sequences", "most that the engine runs at once")
    lookahead_slots: int | None = column("u16?", "tokens", "room kept for a draft")
    configuration: str | None = column(
        "text?", "1", "everything that defines how the engine speculates, as canonical JSON"
    )
    configuration_digest: str | None = column(
        "label?", "1", "digest of the configuration: equal ones have equal digests"
    )
    layout_hash: str | None = column("label?", "1", "hash of the columns that this hook writes")
    tenant: str | None = column("label?", "1", "owner, by the sidecar's token")
    price_per_hour: float | None = column("f64?", "currency", "price that the operator gave")
    ended_at: int | None = column(
        "time?",
        "ns",
        "when the sidecar saw that it had ended with nothing left in its ring; unknown while it "
        "runs, and for good if its last records are unknown",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(RoundMeasures, OfBoot):
    """One round of the running batch, as stored: scalars, sums, and sums by class."""

    seq: int = column(
        "u64", "1", "record number within the boot; rises on drops too, so a loss is a gap"
    )
    policy: int | None = column("u32?", "1", "policy in force")
    pair: int | None = column("u32?", "1", "pair of blocks")
    arm: str | None = column("label?", "1", "arm that ran")
    block_age_ms: int | None = column("u32?", "ms", "time since the block began")
    timing_source: str = column("label", "1", "clock of the parts: host, cuda or engine")
    batch: int = column("u32", "sequences", "running in the round")
    k: int = column("u8", "tokens", "longest draft in the round; 0 is a target-only step")
    n_q: int = column("u32", "tokens", "query tokens of the verify pass, sum of verified + 1")
    n_kv: int = column("u64", "tokens", "sum of contexts")
    proposed: int = column("u32", "tokens", "draft tokens offered")
    verified: int | None = column("u32?", "tokens", "draft tokens that the target checked")
    accepted: int = column("u32", "tokens", "leading ones kept, without correction or bonus")
    emitted: int = column("u32", "tokens", "tokens that the sequences really got")
    model_bytes: int | None = column("u64?", "bytes", "bytes to move, from the model card")
    dram_active: float | None = column(
        "f32?", "1", "share of time in which device memory was busy, in the covering sample"
    )
    dram_window_ms: float | None = column("f32?", "ms", "length of that sample")
    classes: list[str] = column("label[]", "1", "classes in the batch")
    class_sequences: list[int] = column("u32[]", "sequences", "sequences of each class")
    class_proposed: list[int] = column("u32[]", "tokens", "proposed for each class")
    class_verified: list[int] = column("u32[]", "tokens", "verified for each class")
    class_accepted: list[int] = column("u32[]", "tokens", "accepted for each class")
    class_emitted: list[int] = column("u32[]", "tokens", "emitted for each class")
    class_context: list[int] = column("u64[]", "tokens", "sum of contexts of each class")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPart(OfBoot):
    """A request's rounds within one shipped batch; a part never crosses a block."""

    request: int = column("u64", "1", "salted hash of the request's id")
    first_seq: int = column("u64", "1", "record number of its first round here")
    last_seq: int = column("u64", "1", "record number of its last round here")
    started_at: int = column("time", "ns", "when its first round here began")
    class_: str = column("label", "1", "operator's label of the request")
    policy: int | None = column("u32?", "1", "policy in force")
    pair: int | None = column("u32?", "1", "pair of blocks")
    arm: str | None = column("label?", "1", "arm that ran")
    context: int = column("u32", "tokens", "length in the KV cache when its first round here began")
    rounds: int = column("u32", "rounds", "rounds of the request in this part")
    k: list[int] = column("u8[]", "tokens", "draft length, by round")
    verified: list[int] = column(
        "u8[]", "tokens", "draft tokens checked, by round; empty if always k"
    )
    accepted: list[int] = column("u8[]", "tokens", "leading proposals kept, by round")
    emitted: list[int] = column(
        "u8[]", "tokens", "tokens that it really got, by round; empty if always accepted + 1"
    )
    end: str = column(
        "label", "1", "how it ended here, see Ends of a request; `none` while it runs"
    )
    gap_bins: list[int] = column(
        "i16[]",
        "1",
        "log-histogram of the time between its rounds: bin = ceil(ln(ms) / ln(1.01 / 0.99))",
    )
    gap_counts: list[int] = column("u32[]", "1", "rounds in each bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(OfBoot):
    """A request: one row at admission, replaced by one at its end."""

    request: int = column("u64", "1", "salted hash of the request's id")
    seq: int = column("u64", "1", "record number within the boot; the highest is kept")
    class_: str = column("label", "1", "operator's label of the request")
    session: int | None = column("u64?", "1", "salted hash of the session")
    admitted_at: int = column("time", "ns", "when the engine admitted it")
    ended_at: int | None = column("time?", "ns", "when it ended; unknown while it runs")
    policy: int | None = column("u32?", "1", "policy in force at admission")
    pair: int | None = column("u32?", "1", "pair at admission")
    last_pair: int | None = column("u32?", "1", "pair at the end")
    arm: str | None = column("label?", "1", "arm at admission")
    prompt_tokens: int = column("u32", "tokens", "length of the prompt")
    cached_tokens: int | None = column("u32?", "tokens", "prompt tokens found in a prefix cache")
    requested_output: int | None = column("u32?", "tokens", "most that the client asked for")
    output_tokens: int | None = column("u32?", "tokens", "length of the output")
    temperature: float = column("f32", "1", "temperature of sampling; 0 is greedy")
    top_p: float = column("f32", "1", "top-p of sampling; 1 is off")
    guided: bool = column("bool", "1", "whether a grammar constrains the output")
    adapter: str | None = column("label?", "1", "LoRA adapter")
    queue_ms: float | None = column("f32?", "ms", "time from arrival to the first work on it")
    prefill_ms: float | None = column("f32?", "ms", "time of prefill")
    ttft_ms: float | None = column("f32?", "ms", "time from arrival to the first token")
    decode_ms: float | None = column("f32?", "ms", "time from the first token to the last")
    e2e_ms: float | None = column("f32?", "ms", "time from arrival to the end")
    preemptions: int | None = column("u32?", "1", "number of times that it was preempted")
    reason: str = column("label", "1", "how it ended, see Ends of a request; `none` while it runs")
    digest: int | None = column("u64?", "1", "digest of the output token ids")
    content: int | None = column(
        "u64?",
        "1",
        "salted digest of the prompt and of all that determines the output; requests with equal "
        "content must have equal output; unknown if the output is random",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One value read from one device, or the reason why there is none."""

    replica: str = column("label", "1", "serving replica on the same machine")
    sampled_at: int = column("time", "ns", "end of the window")
    window_ms: float | None = column("f32?", "ms", "time that the value averages over")
    uuid: str = column("label", "1", "device; empty if none is visible")
    gpu_instance: int | None = column("u32?", "1", "MIG instance")
    field_: str = column("label", "1", "what was read, such as dram_active, sm_active, power")
    value: float | None = column("f64?", "1", "the value, in `unit`")
    unit: str = column("label", "1", "unit of the value")
    reason: str = column("label", "1", "why there is no value; empty if there is one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """An immutable, numbered policy: what ran where, and since when."""

    policy: int = column("u32", "1", "number of the policy; each new one is higher")
    created_at: int = column("time", "ns", "when it was written")
    kind: str = column("label", "1", "cohort, blocks or table")
    seed: int = column("u64", "1", "key of the hash that draws the order of arms")
    arms: list[str] = column("label[]", "1", "arms of the experiment")
    block_ms: int | None = column("u32?", "ms", "length of a block; unknown for cohorts")
    burn_in_ms: int | None = column("u32?", "ms", "beginning of each block that no estimate uses")
    first_pair: int = column("u32", "1", "first pair under this policy")
    last_pair: int | None = column(
        "u32?", "1", "last pair, then the fallback table is in force; unknown without an end"
    )
    table: str = column("text", "1", "the whole policy, JSON")
    note: str = column("text", "1", "why it was written")
    author: str | None = column("text?", "1", "who wrote it")
    tenant: str | None = column("label?", "1", "tenant that follows it; unknown: all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(OfBoot):
    """Records that exist nowhere else any more, and why."""

    lost_at: int = column("time", "ns", "when the loss was seen")
    table_: str = column("label", "1", "table of the lost records; `ring` if it is not known")
    reason: str = column("label", "1", "why they were lost, see Reasons of a loss")
    first_seq: int | None = column("u64?", "1", "record number of the first one lost")
    count: int | None = column(
        "u64?", "records", "lost records; unknown if the engine ended without closing its ring"
    )
    number: int | None = column("u64?", "1", "batch that held them, if one did")
    detail: str = column("text", "1", "text for a person")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change or an incident: of a gate, a deploy, the guardrail, an experiment."""

    at: int = column("time", "ns", "when it happened")
    kind: str = column("label", "1", "see Kinds of events")
    subject: str = column("text", "1", "number of the policy, name of the experiment, or boot")
    replica: str = column("label", "1", "replica concerned; empty for all")
    tenant: str = column("label", "1", "tenant concerned; empty for all")
    epoch: str | None = column("label?", "1", "epoch concerned")
    policy: int | None = column("u32?", "1", "policy that it put in force, or that was in force")
    author: str | None = column("text?", "1", "person or part that did it")
    note: str = column("text", "1", "reason, as text for a person")
    detail: str = column("text", "1", "everything else, JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The verdict on one segment, as judged at one time from the evidence of one period."""

    assessed_at: int = column("time", "ns", "when the whole assessment was judged")
    since: int = column("time", "ns", "begin of its evidence")
    tenant: str = column("label", "1", "tenant concerned; empty for all")
    epoch: str = column("label", "1", "hash of engine, versions, models and hardware")
    design: str = column("label", "1", "experiment: cohort, blocks, crossover or replay")
    class_: str = column("label", "1", "operator's label of the requests; empty for all together")
    context: str = column("label", "1", "bucket of prompt tokens at admission; empty for all")
    output: str = column("label", "1", "bucket of requested output tokens; empty for all")
    load: str = column("label", "1", "bucket of offered load; empty for all")
    action: str = column("label", "1", "what to do")
    k: int | None = column("u8?", "tokens", "draft length to set, if the action sets one")
    arm: str | None = column("label?", "1", "arm that the verdict is about")
    baseline: str | None = column("label?", "1", "arm that it is compared with")
    grade: str = column("label", "1", "measured, replayed or modelled")
    confidence: str = column("label", "1", "high, low or none")
    metric: str | None = column("label?", "1", "metric that decides")
    speedup: float | None = column("f64?", "1", "ratio of arm to baseline")
    low: float | None = column("f64?", "1", "lower end of its interval")
    high: float | None = column("f64?", "1", "upper end of its interval")
    pairs: int | None = column("u32?", "pairs", "pairs that the verdict is based on")
    pairs_needed: int | None = column("u32?", "pairs", "pairs in total until the action is decided")
    cause: str | None = column("label?", "1", "cause of the loss, or its rivals with commas")
    policy: int | None = column("u32?", "1", "policy in force when it was judged")
    body: str = column("text", "1", "the whole verdict, JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(OfBoot):
    """The ledger: a batch that the store has, whole."""

    number: int = column("u64", "1", "number of the batch within the boot, from 1")
    first_seq: int = column("u64", "1", "first record number of the batch")
    next_seq: int = column("u64", "1", "record number that follows its last")
    rounds: int = column("u32", "rows", "rows of `round` in the batch")
    request_parts: int = column("u32", "rows", "rows of `request_part` in the batch")
    requests: int = column("u32", "rows", "rows of `request` in the batch")
    losses: int = column("u32", "rows", "rows of `loss` in the batch")
    stored_at: int = column("time", "ns", "when the store had the batch")
    first_at: int | None = column("time?", "ns", "when its first round or part began")
    last_at: int | None = column("time?", "ns", "when its last round or part began")
    admitted_at: int | None = column("time?", "ns", "earliest admission of its requests")


LOSS_REASONS = {
    "ring_full": "the sidecar did not drain fast enough; the newest records were dropped",
    "corrupt": "a record did not match its checksum, or could not be read",
    "fault": "the hook detached itself, after a fault or because a policy said so; serving went on",
    "spool_full": "the store could not be reached until the spool was full",
    "clock": "the rows are older than the store keeps, or an hour in the future",
    "refused": "the service could not read the rows",
    "tail_unknown": "the process ended without closing its ring; its last records may be missing",
    "guardrail": "a replica broke its limits and got k = 0; pairs cut by this are void",
    "ring_damaged": "the ring's file was cut, replaced or deleted under its writer",
    "store": "the ledger counts rows that the store no longer has",
    "size": "the rows are larger than the service accepts",
    "unread": "the engine's own output had a form that the sidecar cannot read",
    "classes_full": "a replica has more than 64 classes; the rest is `other`",
}

EVENT_KINDS = {
    "policy": "a policy was put in force; `subject` is its number",
    "rollback": "an earlier table was put in force again",
    "detach": "a policy detached the hooks",
    "guardrail": "a replica lowered k to 0 by itself, or took that back",
    "deploy": "a replica started under an epoch or configuration that it did not run before",
    "experiment": "an experiment was approved, began, decided, ran out of budget, or ended",
    "note": "a person wrote something down",
}

TABLES: dict[str, type[Any]] = {
    "boot": Boot,
    "round": Round,
    "request_part": RequestPart,
    "request": Request,
    "device": Device,
    "policy": Policy,
    "loss": Loss,
    "event": Event,
    "assessment": Assessment,
    "batch": Batch,
}
"""Stored records by table."""
