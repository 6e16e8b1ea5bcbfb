"""Four minutes of traffic whose every number is known, in the tables that a service writes.

One replica runs two requests at a time, one `sql`, one `prose`, 20 rounds a minute: ten of arm
k0, then ten of arm k4, which is one pair. At k = 4 `sql` keeps all four proposals and `prose`
one. A k0 round takes 1,000 us, a k4 round 1,600 us: break-even is 1.6 tokens per round.
"""

from __future__ import annotations

import time

from specscope.store.connection import Store
from specscope_agent.loss import rows_table

MINUTES = 4
SECOND = 10**9
REPLICA, BOOT, EPOCH = "replica-1", "boot-1", "epoch-1"
K = 4
ACCEPTED = {"sql": 4, "prose": 1}
PARTS_K0 = {"draft_us": None, "verify_us": 900.0, "sample_us": 60.0, "idle_us": 40.0}
PARTS_K4 = {"draft_us": 400.0, "verify_us": 1000.0, "sample_us": 80.0, "idle_us": 120.0}
WALL = {0: 1000.0, K: 1600.0}
CONTEXT = {"sql": 200, "prose": 800}
LOST = 7
KV_BYTES, WEIGHT_BYTES = 512, 14_000_000


def begin() -> int:
    """Start of the traffic: six whole minutes ago, ns since 1970."""
    return (time.time_ns() // (60 * SECOND) - 6) * 60 * SECOND


def fill(store: Store, begin_ns: int) -> None:
    """Write all of it."""
    rows: dict[str, list[dict]] = {name: [] for name in ("round", "request_part", "request")}
    seq = 0
    for minute in range(MINUTES):
        started = begin_ns + minute * 60 * SECOND
        ids = {"sql": 1000 + minute, "prose": 2000 + minute}
        for half, k in enumerate((0, K)):
            first = seq + 1
            for index in range(10):
                seq += 1
                at = started + (half * 30 + index) * SECOND
                rows["round"].append(_round(seq, at, minute, k, index))
            for label in ids:
                rows["request_part"].append(
                    _part(ids[label], label, first, started + half * 30 * SECOND, minute, k)
                )
        for label in ids:
            seq += 1
            rows["request"].append(_request(seq, ids[label], label, started, minute))
    rows["boot"] = [_boot(begin_ns)]
    rows["loss"] = [_loss(begin_ns + 90 * SECOND)]
    rows["device"] = list(_devices(begin_ns))
    rows["batch"] = [_batch(begin_ns, number, seq, rows) for number in (1, 2)]
    rows["policy"] = [_policy(begin_ns)]
    for table, values in rows.items():
        store.insert(table, rows_table(table, values))


def _experiment(minute: int, k: int) -> dict:
    return {"policy": 1, "pair": minute + 1, "arm": f"k{k}"}


def _round(seq: int, at: int, minute: int, k: int, index: int) -> dict:
    accepted = {label: ACCEPTED[label] if k else 0 for label in ACCEPTED}
    context = sum(CONTEXT.values())
    return {
        "replica": REPLICA,
        "boot": BOOT,
        "seq": seq,
        "started_at": at,
        **_experiment(minute, k),
        "block_age_ms": index * 1000,
        "waiting": 3,
        "timing_source": "host",
        "wall_us": WALL[k],
        **(PARTS_K4 if k else PARTS_K0),
        "catchup_us": None,
        "prefill_us": None,
        "prefill_tokens": 0,
        "padded_tokens": 2 if k else 0,
        "invalid": 0,
        "preempted": 0,
        "batch": 2,
        "k": k,
        "n_q": 2 * (k + 1),
        "n_kv": context,
        "proposed": 2 * k,
        "accepted": sum(accepted.values()),
        "emitted": sum(accepted.values()) + 2,
        "model_bytes": WEIGHT_BYTES + context * KV_BYTES,
        "dram_active": 0.5,
        "dram_window_ms": 1000.0,
        "classes": list(ACCEPTED),
        "class_sequences": [1, 1],
        "class_proposed": [k, k],
        "class_accepted": list(accepted.values()),
        "class_emitted": [a + 1 for a in accepted.values()],
        "class_context": [CONTEXT[label] for label in ACCEPTED],
    }


def _part(request: int, label: str, first: int, at: int, minute: int, k: int) -> dict:
    return {
        "replica": REPLICA,
        "boot": BOOT,
        "request": request,
        "first_seq": first,
        "last_seq": first + 9,
        "started_at": at,
        "class": label,
        **_experiment(minute, k),
        "context": CONTEXT[label],
        "rounds": 10,
        "k": [k] * 10,
        "accepted": [ACCEPTED[label] if k else 0] * 10,
        "emitted": [],
        "end": "eos" if k else "none",
        "gap_bins": [35],
        "gap_counts": [9],
    }


def _request(seq: int, request: int, label: str, at: int, minute: int) -> dict:
    tokens = 10 + 10 * (ACCEPTED[label] + 1)
    return {
        "replica": REPLICA,
        "boot": BOOT,
        "request": request,
        "seq": seq,
        "class": label,
        "session": None,
        "admitted_at": at,
        "ended_at": at + 45 * SECOND,
        **_experiment(minute, 0),
        "last_pair": minute + 1,
        "prompt_tokens": CONTEXT[label],
        "cached_tokens": 0,
        "requested_output": 128,
        "output_tokens": tokens,
        "temperature": 0.0,
        "top_p": 1.0,
        "guided": False,
        "adapter": None,
        "queue_ms": 4.0,
        "prefill_ms": 20.0,
        "ttft_ms": 25.0 if label == "sql" else 75.0,
        "decode_ms": 10.0 * (tokens - 1),
        "e2e_ms": 10.0 * (tokens - 1) + 25.0,
        "preemptions": 0,
        "reason": "eos",
        "digest": request,
    }


def _boot(at: int) -> dict:
    unknown = dict.fromkeys(
        ("draft", "quantisation", "gpu_type", "driver", "experts", "draft_parameters"), None
    )
    return {
        "replica": REPLICA,
        "boot": BOOT,
        "started_at": at - SECOND,
        "host": "node-1",
        "engine": "reference",
        "engine_version": "0.1.0",
        "hook_version": "0.1.0",
        "epoch": EPOCH,
        "target": "bundled-6m",
        "method": "draft_model",
        "k_max": K,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "data_parallel": 1,
        "expert_parallel": 1,
        "rank": 0,
        "role": "both",
        "gpu_uuids": [],
        **unknown,
        "parameters": 7_000_000,
        "active_parameters": 7_000_000,
        "bytes_per_weight": 2.0,
        "kv_bytes_per_token": KV_BYTES,
        "layers": 6,
        "draft_bytes_per_weight": 2.0,
        "draft_kv_bytes_per_token": 64,
        "price_per_hour": None,
    }


def _loss(at: int) -> dict:
    return {
        "replica": REPLICA,
        "boot": BOOT,
        "lost_at": at,
        "table": "ring",
        "reason": "ring_full",
        "first_seq": 9_000,
        "count": LOST,
        "detail": "the sidecar was behind",
    }


def _devices(begin_ns: int):
    for minute in range(MINUTES):
        at = begin_ns + minute * 60 * SECOND
        yield _device(at, "GPU-1", "dram_active", 0.5, "share", "")
        yield _device(at, "GPU-1", "tensor_active", None, "share", "no permission")


def _device(at: int, uuid: str, field: str, value: float | None, unit: str, reason: str) -> dict:
    return {
        "replica": REPLICA,
        "sampled_at": at,
        "window_ms": 1000.0,
        "uuid": uuid,
        "gpu_instance": None,
        "field": field,
        "value": value,
        "unit": unit,
        "reason": reason,
    }


def _batch(begin_ns: int, number: int, seq: int, rows: dict[str, list[dict]]) -> dict:
    """The ledger: two batches that hold half of everything each."""
    middle = seq // 2
    return {
        "replica": REPLICA,
        "boot": BOOT,
        "number": number,
        "first_seq": 1 if number == 1 else middle + 1,
        "next_seq": middle + 1 if number == 1 else seq + 1,
        "rounds": len(rows["round"]) // 2,
        "request_parts": len(rows["request_part"]) // 2,
        "requests": len(rows["request"]) // 2,
        "losses": number - 1,
        "stored_at": begin_ns + number * 120 * SECOND + 2 * SECOND,
    }


def _policy(at: int) -> dict:
    return {
        "policy": 1,
        "created_at": at,
        "kind": "blocks",
        "seed": 1,
        "arms": ["k0", "k4"],
        "block_ms": 30_000,
        "burn_in_ms": 0,
        "first_pair": 1,
        "table": "{}",
        "note": "test traffic",
    }
