"""Every record, each column once: its name, type, unit and meaning.

Ring payloads, Arrow schemas, ClickHouse tables, column comments and the data dictionary
are derived from the classes below; nothing else says what a column is. Change is additive:
a missing column reads as NULL, an unknown one is counted and dropped. How a column is
written is in `columns`.

Three groups: what crosses the ring (`RingRound`, `RingRequest`), what is stored (`Boot`,
`Round`, `RequestPart`, `Request`, `Device`, `Policy`, `Loss`), and the ledger of what has
been stored (`Batch`). A trailing underscore is not part of the stored name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specscope_hook.columns import column

# --- across the ring -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRound:
    """One round of the running batch, as the hook writes it: scalars, then one value a sequence."""

    started_at: int = column("time", "ns", "when the round began")
    policy: int = column("u32", "1", "policy in force; 0 where none is")
    pair: int = column(
        "u32", "1", "pair of blocks that the round belongs to; 0 outside an experiment"
    )
    block_age_ms: int = column("u32", "ms", "since the block began; 0 outside an experiment")
    waiting: int = column("u32", "requests", "queued and not yet running")
    wall_us: float = column(
        "f32", "us", "from the end of the round before, or its own start after idling, to its end"
    )
    draft_us: float = column("f32", "us", "draft model; NaN where it cannot be seen")
    verify_us: float = column("f32", "us", "target forward; NaN where it cannot be seen")
    sample_us: float = column(
        "f32", "us", "acceptance, sampling and bookkeeping; NaN where it cannot be seen"
    )
    idle_us: float = column(
        "f32", "us", "device idle between the parts; NaN where it cannot be seen"
    )
    catchup_us: float = column(
        "f32", "us", "draft prefill after rounds at k = 0; NaN where it cannot be seen"
    )
    prefill_us: float = column(
        "f32", "us", "target prefill inside the round's wall time; NaN where it cannot be seen"
    )
    prefill_tokens: int = column("u32", "tokens", "prompt tokens computed within the round")
    padded_tokens: int = column("u32", "tokens", "query positions computed for nobody")
    invalid: int = column(
        "u32", "tokens", "proposals that a grammar refused before the verify pass"
    )
    preempted: int = column("u16", "requests", "put back into the queue in the round")
    arm: int = column(
        "u8", "1", "arm that ran, by the ring's dictionary; 255 outside an experiment"
    )
    timing_source: int = column("u8", "1", "0 host, 1 cuda, 2 engine")
    requests: list[int] = column("u64[]", "1", "salted hash of each request's id")
    contexts: list[int] = column("u32[]", "tokens", "in each KV cache when the round began")
    classes: list[int] = column(
        "u8[]", "1", "class of each, by the ring's dictionary; 255 is `other`"
    )
    k: list[int] = column("u8[]", "tokens", "draft length of each; 0 is target-only")
    accepted: list[int] = column(
        "u8[]", "tokens", "leading proposals kept; correction or bonus not counted"
    )
    emitted: list[int] = column(
        "u8[]", "tokens", "really came out; accepted + 1, fewer where the text ended inside"
    )
    ends: list[int] = column("u8[]", "1", "how each ended in the round, see End")


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRequest:
    """A request at admission and again at its end, then whole (the reader keeps no state)."""

    request: int = column("u64", "1", "salted hash of the request's id")
    session: int = column("u64", "1", "salted hash of the session; 0 where the client named none")
    admitted_at: int = column("time", "ns", "when the engine took it in")
    ended_at: int = column("time", "ns", "when it ended; 0 at admission")
    digest: int = column("u64", "1", "of the output token ids; 0 where not known")
    content: int = column(
        "u64",
        "1",
        "salted digest of the prompt and all that shapes its output, where these decide the output "
        "(greedy or coupled sampling); 0 where they do not or are not known",
    )
    policy: int = column("u32", "1", "policy in force at admission; 0 where none was")
    pair: int = column("u32", "1", "pair at admission; 0 outside an experiment")
    last_pair: int = column("u32", "1", "pair at the end; 0 outside an experiment")
    prompt_tokens: int = column("u32", "tokens", "length of the prompt")
    cached_tokens: int = column(
        "u32", "tokens", "of these found in a prefix cache; largest value where not known"
    )
    requested_output: int = column(
        "u32", "tokens", "most that the client asked for; largest value where not said"
    )
    output_tokens: int = column("u32", "tokens", "came out; 0 at admission")
    preemptions: int = column("u32", "1", "times it was put back into the queue")
    temperature: float = column("f32", "1", "of sampling; 0 is greedy")
    top_p: float = column("f32", "1", "of nucleus sampling; 1 is off")
    queue_ms: float = column(
        "f32", "ms", "from arrival to the first work on it; NaN where not known"
    )
    prefill_ms: float = column("f32", "ms", "of prompt work; NaN where not known")
    ttft_ms: float = column(
        "f32", "ms", "from arrival to the first token; NaN where there was none"
    )
    decode_ms: float = column(
        "f32", "ms", "from the first token to the last; NaN where there was none"
    )
    e2e_ms: float = column("f32", "ms", "from arrival to the end; NaN at admission")
    class_: int = column("u8", "1", "by the ring's dictionary; 255 is `other`")
    adapter: int = column("u8", "1", "LoRA adapter by the ring's dictionary; 255 is none")
    arm: int = column(
        "u8", "1", "arm at admission, by the ring's dictionary; 255 outside an experiment"
    )
    guided: int = column("u8", "1", "1 where a grammar constrains the output")
    reason: int = column("u8", "1", "how it ended, see End; 0 at admission")


# --- stored ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One start of one serving process, with everything that defines it."""

    replica: str = column("label", "1", "name of the serving replica")
    boot: str = column("text", "1", "this start of it, a random identifier")
    started_at: int = column("time", "ns", "when the hook attached")
    host: str = column("label", "1", "machine that it runs on")
    engine: str = column("label", "1", "serving engine")
    engine_version: str = column("label", "1", "version of the engine")
    hook_version: str = column("label", "1", "version of this hook")
    epoch: str = column(
        "label", "1", "hash of engine, versions, models and hardware; evidence never crosses it"
    )
    target: str = column("label", "1", "target model")
    draft: str | None = column("label?", "1", "draft model, where there is one")
    quantisation: str | None = column("label?", "1", "of the target's weights")
    method: str = column(
        "label", "1", "speculation: none, draft_model, ngram, eagle, mtp and so on"
    )
    k_max: int = column("u8", "tokens", "longest draft that the engine can run")
    k_schedule: str | None = column(
        "label?",
        "1",
        "draft lengths by batch size that the engine was started with, in its own words; none "
        "where it has a single one",
    )
    tensor_parallel: int = column("u16", "1", "size of the tensor-parallel group")
    pipeline_parallel: int = column("u16", "1", "number of pipeline stages")
    data_parallel: int = column("u16", "1", "number of data-parallel ranks")
    expert_parallel: int = column("u16", "1", "size of the expert-parallel group")
    rank: int = column("u16", "1", "data-parallel rank of this process")
    role: str = column("label", "1", "prefill, decode or both")
    gpu_uuids: list[str] = column("text[]", "1", "devices that it runs on; none on a CPU")
    gpu_type: str | None = column("label?", "1", "name of the device")
    driver: str | None = column("label?", "1", "version of the device's driver")
    parameters: int | None = column("u64?", "1", "of the target")
    active_parameters: int | None = column("u64?", "1", "of the target, for one token")
    bytes_per_weight: float | None = column(
        "f32?", "bytes", "of the target, as it is stored on the device"
    )
    kv_bytes_per_token: int | None = column("u32?", "bytes", "of the target's cache, all layers")
    layers: int | None = column("u16?", "1", "of the target")
    experts: int | None = column("u16?", "1", "of the target; unknown or none for a dense model")
    draft_parameters: int | None = column("u64?", "1", "of the draft model")
    draft_bytes_per_weight: float | None = column("f32?", "bytes", "of the draft model")
    draft_kv_bytes_per_token: int | None = column(
        "u32?", "bytes", "of the draft model's cache, all layers"
    )
    price_per_hour: float | None = column(
        "f64?", "currency", "of the replica, where the operator gave it"
    )
    ended_at: int | None = column(
        "time?",
        "ns",
        "when the sidecar saw that it had ended as it should, with nothing left behind; unknown "
        "while it runs, and for ever where its tail is unknown",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of the running batch, as stored: scalars, sums, and sums by class."""

    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "start of it")
    seq: int = column(
        "u64", "1", "record number within the boot; rises on drops too, so a loss is a gap"
    )
    started_at: int = column("time", "ns", "when the round began")
    policy: int | None = column("u32?", "1", "policy in force")
    pair: int | None = column("u32?", "1", "pair of blocks that it belongs to")
    arm: str | None = column("label?", "1", "arm that ran")
    block_age_ms: int | None = column("u32?", "ms", "since the block began")
    waiting: int = column("u32", "requests", "queued and not yet running")
    timing_source: str = column("label", "1", "clock of the parts: host, cuda or engine")
    wall_us: float | None = column(
        "f32?", "us", "from the end of the round before, or its own start after idling, to its end"
    )
    draft_us: float | None = column("f32?", "us", "draft model")
    verify_us: float | None = column("f32?", "us", "target forward")
    sample_us: float | None = column("f32?", "us", "acceptance, sampling and bookkeeping")
    idle_us: float | None = column("f32?", "us", "device idle between the parts")
    catchup_us: float | None = column("f32?", "us", "draft prefill after rounds at k = 0")
    prefill_us: float | None = column("f32?", "us", "target prefill inside the round's wall time")
    prefill_tokens: int = column("u32", "tokens", "prompt tokens computed within the round")
    padded_tokens: int = column("u32", "tokens", "query positions computed for nobody")
    invalid: int = column(
        "u32", "tokens", "proposals that a grammar refused before the verify pass"
    )
    preempted: int = column("u16", "requests", "put back into the queue in the round")
    batch: int = column("u32", "sequences", "in the round")
    k: int = column("u8", "tokens", "longest draft in the round; 0 is a target-only step")
    n_q: int = column("u32", "tokens", "query tokens of the verify pass, sum of k + 1")
    n_kv: int = column("u64", "tokens", "sum of contexts")
    proposed: int = column("u32", "tokens", "draft tokens offered")
    accepted: int = column("u32", "tokens", "leading ones kept; correction or bonus not counted")
    emitted: int = column("u32", "tokens", "really came out")
    model_bytes: int | None = column(
        "u64?", "bytes", "that the round had to move, from the model card"
    )
    dram_active: float | None = column(
        "f32?", "1", "share of time the device's memory was busy, in the enclosing sample"
    )
    dram_window_ms: float | None = column(
        "f32?", "ms", "length of that sample; it never resolves one round"
    )
    classes: list[str] = column("label[]", "1", "classes in the batch")
    class_sequences: list[int] = column("u32[]", "sequences", "of each class")
    class_proposed: list[int] = column("u32[]", "tokens", "proposed for each class")
    class_accepted: list[int] = column("u32[]", "tokens", "accepted for each class")
    class_emitted: list[int] = column("u32[]", "tokens", "emitted for each class")
    class_context: list[int] = column("u64[]", "tokens", "sum of contexts of each class")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPart:
    """A request's rounds within one shipped batch; a part never crosses a block."""

    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "start of it")
    request: int = column("u64", "1", "salted hash of the request's id")
    first_seq: int = column("u64", "1", "record number of its first round here")
    last_seq: int = column("u64", "1", "record number of its last round here")
    started_at: int = column("time", "ns", "when its first round here began")
    class_: str = column("label", "1", "operator's label of the request")
    policy: int | None = column("u32?", "1", "policy in force")
    pair: int | None = column("u32?", "1", "pair of blocks")
    arm: str | None = column("label?", "1", "arm that ran")
    context: int = column("u32", "tokens", "in its KV cache when its first round here began")
    rounds: int = column("u32", "rounds", "it took part in here")
    k: list[int] = column("u8[]", "tokens", "draft length, by round")
    accepted: list[int] = column("u8[]", "tokens", "leading proposals kept, by round")
    emitted: list[int] = column(
        "u8[]", "tokens", "really came out, by round; empty where always accepted + 1"
    )
    end: str = column("label", "1", "how it ended here: none, eos, length, stop, abort, preempt")
    gap_bins: list[int] = column(
        "i16[]",
        "1",
        "log-histogram of the time between its rounds: bin = ceil(ln(ms) / ln(1.01 / 0.99))",
    )
    gap_counts: list[int] = column("u32[]", "1", "rounds in each bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request: one row at admission, replaced by one at its end."""

    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "start of it")
    request: int = column("u64", "1", "salted hash of the request's id")
    seq: int = column("u64", "1", "record number within the boot; the later row stands")
    class_: str = column("label", "1", "operator's label of the request")
    session: int | None = column("u64?", "1", "salted hash of the session")
    admitted_at: int = column("time", "ns", "when the engine took it in")
    ended_at: int | None = column("time?", "ns", "when it ended; unknown while it runs")
    policy: int | None = column("u32?", "1", "policy in force at admission")
    pair: int | None = column("u32?", "1", "pair at admission")
    last_pair: int | None = column("u32?", "1", "pair at the end")
    arm: str | None = column("label?", "1", "arm at admission")
    prompt_tokens: int = column("u32", "tokens", "length of the prompt")
    cached_tokens: int | None = column("u32?", "tokens", "of these found in a prefix cache")
    requested_output: int | None = column("u32?", "tokens", "most that the client asked for")
    output_tokens: int | None = column("u32?", "tokens", "came out")
    temperature: float = column("f32", "1", "of sampling; 0 is greedy")
    top_p: float = column("f32", "1", "of nucleus sampling; 1 is off")
    guided: bool = column("bool", "1", "a grammar constrains the output")
    adapter: str | None = column("label?", "1", "LoRA adapter")
    queue_ms: float | None = column("f32?", "ms", "from arrival to the first work on it")
    prefill_ms: float | None = column("f32?", "ms", "of prompt work")
    ttft_ms: float | None = column("f32?", "ms", "from arrival to the first token")
    decode_ms: float | None = column("f32?", "ms", "from the first token to the last")
    e2e_ms: float | None = column("f32?", "ms", "from arrival to the end")
    preemptions: int | None = column("u32?", "1", "times it was put back into the queue")
    reason: str = column("label", "1", "how it ended: none while it runs, eos, length, stop, abort")
    digest: int | None = column("u64?", "1", "of the output token ids")
    content: int | None = column(
        "u64?",
        "1",
        "salted digest of the prompt and all that shapes its output; requests that share it must "
        "have the same output; unknown where chance decides the output",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One value read from one device, or the reason why there is none."""

    replica: str = column("label", "1", "serving replica on the same machine")
    sampled_at: int = column("time", "ns", "end of the window")
    window_ms: float | None = column(
        "f32?", "ms", "that the value is a mean over; unknown for an instant"
    )
    uuid: str = column("label", "1", "device; empty where none is visible")
    gpu_instance: int | None = column("u32?", "1", "MIG instance")
    field_: str = column("label", "1", "what was read, such as dram_active, sm_active, power")
    value: float | None = column("f64?", "1", "in its unit")
    unit: str = column("label", "1", "of the value")
    reason: str = column("label", "1", "why there is no value; empty where there is one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """An immutable, numbered policy: what ran where, and since when."""

    policy: int = column("u32", "1", "number; rises")
    created_at: int = column("time", "ns", "when it was written")
    kind: str = column("label", "1", "cohort, blocks or table")
    seed: int = column("u64", "1", "key of the hash that draws the order of arms")
    arms: list[str] = column("label[]", "1", "arms that it draws from")
    block_ms: int | None = column("u32?", "ms", "length of a block; unknown for cohorts")
    burn_in_ms: int | None = column("u32?", "ms", "of each block that no estimate uses")
    first_pair: int = column("u32", "1", "pair that it takes effect with")
    table: str = column("text", "1", "gate table, JSON")
    note: str = column("text", "1", "who wrote it, and why")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that exist nowhere else any more, and why."""

    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "start of it")
    lost_at: int = column("time", "ns", "when the loss was seen")
    table_: str = column("label", "1", "records of which kind; `ring` where the kind is not known")
    reason: str = column("label", "1", "see LOSS_REASONS")
    first_seq: int | None = column("u64?", "1", "record number of the first one lost")
    count: int | None = column("u64?", "records", "lost; unknown for an unknown tail")
    detail: str = column("text", "1", "for a person")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The ledger: a batch that the store has, whole."""

    replica: str = column("label", "1", "serving replica")
    boot: str = column("text", "1", "start of it")
    number: int = column("u64", "1", "of the batch within the boot, from 1")
    first_seq: int = column("u64", "1", "first record number that it accounts for")
    next_seq: int = column("u64", "1", "record number that follows its last")
    rounds: int = column("u32", "rows", "of round in it")
    request_parts: int = column("u32", "rows", "of request_part in it")
    requests: int = column("u32", "rows", "of request in it")
    losses: int = column("u32", "rows", "of loss in it")
    stored_at: int = column("time", "ns", "when the store had it")
    first_at: int | None = column(
        "time?", "ns", "when its first round or part began; unknown where it has none"
    )
    last_at: int | None = column("time?", "ns", "when its last round or part began")
    admitted_at: int | None = column("time?", "ns", "earliest admission of its requests")


LOSS_REASONS = {
    "ring_full": "the sidecar did not drain fast enough; the newest records were dropped",
    "corrupt": "a record did not match its checksum, or could not be read",
    "fault": "the hook failed and detached itself; serving went on",
    "spool_full": "the store could not be reached for longer than the spool holds",
    "clock": "the time of the rows lies outside what the store keeps",
    "refused": "the service could not read the rows",
    "tail_unknown": "the serving process ended without saying so; its last records may be missing",
    "guardrail": "k = 0 was put in force where limits were broken; the pairs that it cut are void",
    "classes_full": "a replica has more than 64 classes; the rest is `other`",
}

TABLES: dict[str, type[Any]] = {
    "boot": Boot,
    "round": Round,
    "request_part": RequestPart,
    "request": Request,
    "device": Device,
    "policy": Policy,
    "loss": Loss,
    "batch": Batch,
}
"""Stored records by table."""
