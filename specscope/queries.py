"""What a number means, once: one function a quantity, shared by dashboards and report.

A function takes the condition on rows as SQL text, since Grafana and the report spell ranges
of time differently, and returns the whole statement. Its docstring says the table and so the
column of time that a condition can use, and ends its first paragraph with the unit.
"""

from __future__ import annotations

from specscope.buckets import LOAD
from specscope.copies import output_count, outputs
from specscope.delivery import (
    EVERYTHING,
    boots,
    endings,
    guardrails,
    losses,
    losses_by_minute,
    policies,
    reconciliation,
    silence,
    stored_rounds,
    stored_rows,
)
from specscope.pooled import block_count, pooled_blocks, pooled_classes, pooled_parts

__all__ = [
    "EVERYTHING", "PARTS", "acceptance_by_position", "acceptance_rate", "accepted_lengths",
    "bandwidth", "batch_and_waiting", "block_classes", "block_count", "block_parts", "blocks",
    "boots", "break_even", "classes", "context", "device", "ended_requests", "endings",
    "guardrails", "losses", "losses_by_minute", "output_count", "outputs", "policies",
    "pooled_blocks", "pooled_classes", "pooled_parts", "reconciliation", "replicas",
    "request_latency", "residence", "round_time", "round_time_by_k", "silence", "stored_rounds",
    "stored_rows", "throughput", "throughput_by_arm", "tokens_per_round",
]  # fmt: skip

# Columns of one part of a round each, in the order in which they are drawn.
PARTS = ("draft", "verify", "sample", "idle", "catchup", "prefill")

# --- what there is to choose from --------------------------------------------------------


def replicas(where: str = EVERYTHING) -> str:
    """Replicas that ran rounds. [1]

    Table `minute_time`, time `minute`.
    """
    return f"SELECT DISTINCT replica FROM minute_time WHERE {where} ORDER BY replica"


def classes(where: str = EVERYTHING) -> str:
    """Classes that ran rounds. [1]

    Table `minute`, time `minute`.
    """
    return f"SELECT DISTINCT class FROM minute WHERE {where} ORDER BY class"


# --- what speculation yields -------------------------------------------------------------


def tokens_per_round(where: str = EVERYTHING) -> str:
    """Tokens that came out for a sequence in a round, by minute and class. [tokens]

    Table `minute`, time `minute`. Target-only rounds count too: they yield 1.
    """
    return f"""
        SELECT minute, class, sum(emitted) / sum(request_rounds) AS tokens_per_round
        FROM minute FINAL WHERE {where}
        GROUP BY minute, class ORDER BY minute, class"""


def break_even(where: str = EVERYTHING) -> str:
    """Tokens per round with speculation, and what a round's time asks for, by minute. [tokens]

    Table `minute_time`, time `minute`. `needed` is the mean time of a speculative round over
    that of a target-only round in the same minute: unknown where no target-only round ran.
    Batches of the two may differ, so this shows, and only randomised blocks decide.
    """
    return f"""
        SELECT minute,
            sumIf(emitted, k > 0) / nullIf(sumIf(batch, k > 0), 0) AS tokens_per_round,
            (sumIf(wall_us, k > 0) / nullIf(sumIf(rounds, k > 0), 0))
                / nullIf(sumIf(wall_us, k = 0) / nullIf(sumIf(rounds, k = 0), 0), 0) AS needed
        FROM minute_time FINAL WHERE {where}
        GROUP BY minute ORDER BY minute"""


def acceptance_by_position(where: str = EVERYTHING) -> str:
    """Chance that a round keeps its proposals up to each position, by class. [share]

    Table `minute`, time `minute`. `hazard` is the chance at the position given that it was
    tested, `survival` the product up to it; `tested` is the evidence. Positions behind the end
    of a text were not tested.
    """
    return f"""
        SELECT class, position, tested, kept, hazard, survival
        FROM (
            SELECT class, sumForEach(tested) AS n, sumForEach(kept) AS d,
                arrayMap((kept_, tested_) -> kept_ / nullIf(tested_, 0), d, n) AS hazards
            FROM minute FINAL WHERE k > 0 AND ({where})
            GROUP BY class
        )
        ARRAY JOIN arrayEnumerate(n) AS position, n AS tested, d AS kept, hazards AS hazard,
            arrayMap(i -> arrayProduct(arrayMap(x -> ifNull(x, nan), arraySlice(hazards, 1, i))),
                arrayEnumerate(n)) AS survival
        WHERE tested > 0
        ORDER BY class, position"""


def accepted_lengths(where: str = EVERYTHING) -> str:
    """Rounds by the proposals that they kept, by class and draft length. [rounds]

    Table `minute`, time `minute`.
    """
    return f"""
        SELECT class, k, accepted_length, rounds
        FROM (
            SELECT class, k, sumForEach(accepted_length) AS counts
            FROM minute FINAL WHERE {where} GROUP BY class, k
        )
        ARRAY JOIN counts AS rounds, arrayMap(i -> i - 1, arrayEnumerate(counts)) AS accepted_length
        ORDER BY class, k, accepted_length"""


def acceptance_rate(where: str = EVERYTHING) -> str:
    """Share of proposed tokens that were kept, by minute and class. [share]

    Table `minute`, time `minute`. It never decides: see tokens_per_round and break_even.
    """
    return f"""
        SELECT minute, class, sum(accepted) / nullIf(sum(proposed), 0) AS acceptance_rate
        FROM minute FINAL WHERE {where}
        GROUP BY minute, class ORDER BY minute, class"""


# --- what it costs -----------------------------------------------------------------------


def round_time(where: str = EVERYTHING) -> str:
    """Where a round's time goes, by minute: mean of each part. [ms]

    Table `minute_time`, time `minute`. `other` is wall time that no part explains; a part
    that some rounds do not show is unknown, and then so is `other`.
    """
    known = " + ".join(f"ifNull({part}, 0)" for part in PARTS)
    return f"""
        SELECT minute,
            {_parts()},
            if(isNull(verify), NULL, greatest(0, {_mean("wall_us")} - ({known}))) AS other
        FROM minute_time AS m FINAL WHERE {where}
        GROUP BY minute ORDER BY minute"""


def round_time_by_k(where: str = EVERYTHING) -> str:
    """Mean time of a round, by its longest draft. [ms]

    Table `minute_time`, time `minute`.
    """
    return f"""
        SELECT k, sum(m.rounds) AS rounds, sum(m.batch) / sum(m.rounds) AS batch,
            {_mean("wall_us")} AS wall,
            {_parts()}
        FROM minute_time AS m FINAL WHERE {where}
        GROUP BY k ORDER BY k"""


def throughput(where: str = EVERYTHING) -> str:
    """Tokens that came out, per second of a replica's busy time, by minute. [tokens/s]

    Table `minute_time`, time `minute`.
    """
    return f"""
        SELECT minute, sum(emitted) / nullIf({_whole("wall_us")}, 0) * 1e6 AS tokens_per_second
        FROM minute_time FINAL WHERE {where}
        GROUP BY minute ORDER BY minute"""


def bandwidth(where: str = EVERYTHING) -> str:
    """Bytes that the rounds had to move, per second of verify time, by minute. [bytes/s]

    Table `minute_time`, time `minute`. Unknown without a model card. What the device really
    moved is in `device`, as dram_active.
    """
    return f"""
        SELECT minute, {_whole("model_bytes")} / nullIf({_whole("verify_us")}, 0) * 1e6 AS bandwidth
        FROM minute_time FINAL WHERE {where}
        GROUP BY minute ORDER BY minute"""


def batch_and_waiting(where: str = EVERYTHING) -> str:
    """Sequences in a round, and requests that waited meanwhile, by minute. [sequences]

    Table `minute_time`, time `minute`.
    """
    return f"""
        SELECT minute, sum(batch) / sum(rounds) AS batch, sum(waiting) / sum(rounds) AS waiting
        FROM minute_time FINAL WHERE {where}
        GROUP BY minute ORDER BY minute"""


def context(where: str = EVERYTHING) -> str:
    """Mean context of a sequence when a round began, by minute and class. [tokens]

    Table `minute`, time `minute`.
    """
    return f"""
        SELECT minute, class, sum(context) / sum(request_rounds) AS context
        FROM minute FINAL WHERE {where}
        GROUP BY minute, class ORDER BY minute, class"""


def request_latency(where: str = EVERYTHING) -> str:
    """Latency of ended requests, by class: quantiles of each measure. [ms]

    Table `request`, times `admitted_at` and `ended_at`. `tpot` is the time of a token after
    the first.
    """
    quantiles = ",\n            ".join(
        f"quantileExact({level / 100})({value}) AS {name}_p{level}"
        for name, value in (
            ("queue", "queue_ms"),
            ("ttft", "ttft_ms"),
            ("tpot", "decode_ms / nullIf(output_tokens - 1, 0)"),
            ("e2e", "e2e_ms"),
        )
        for level in (50, 95, 99)
    )
    return f"""
        SELECT class, count() AS requests,
            {quantiles}
        FROM request FINAL WHERE isNotNull(ended_at) AND ({where})
        GROUP BY class ORDER BY class"""


def residence(where: str = EVERYTHING) -> str:
    """How long requests stayed, from arrival to end: mean and 95th percentile. [s]

    Table `request`, times `admitted_at` and `ended_at`. One row, of `requests` that ended, or none.
    """
    return f"""
        SELECT count() AS requests, avg(toFloat64(e2e_ms)) / 1000 AS mean_s,
            quantileExact(0.95)(toFloat64(e2e_ms)) / 1000 AS p95_s
        FROM request FINAL
        WHERE isNotNull(ended_at) AND e2e_ms > 0 AND isFinite(e2e_ms) AND ({where})
        HAVING count() > 0"""


def device(where: str = EVERYTHING) -> str:
    """What devices reported, by minute: mean of each field in its own unit. [1]

    Table `device`, time `sampled_at`. A field without values names the reason instead.
    """
    return f"""
        SELECT toDateTime64(toStartOfMinute(sampled_at), 3, 'UTC') AS minute, replica, uuid, field,
            any(unit) AS unit, avg(value) AS value, anyIf(reason, reason != '') AS reason
        FROM device FINAL WHERE {where}
        GROUP BY minute, replica, uuid, field ORDER BY minute, replica, uuid, field"""


# --- experiments -------------------------------------------------------------------------


def blocks(where: str = EVERYTHING) -> str:
    """Every block, as the evaluator reads it: a row of `block_time`. [1]

    Table `block_time`, times `first_at` and `last_at`; they come out in ns since 1970.
    """
    return f"""
        SELECT * EXCEPT (version) REPLACE (
            toUnixTimestamp64Nano(first_at) AS first_at, toUnixTimestamp64Nano(last_at) AS last_at)
        FROM (SELECT * FROM block_time FINAL WHERE {where})
        ORDER BY epoch, policy, replica, boot, pair, arm"""


def block_parts(where: str = EVERYTHING) -> str:
    """Every block by segment and draft length, as the evaluator reads it. [1]

    Table `block_time`, times `first_at` and `last_at`: the parts of the blocks that it chooses.
    """
    return f"""
        SELECT * EXCEPT (version) FROM block_part FINAL
        WHERE (epoch, policy, replica, boot, pair, arm) IN (
            SELECT epoch, policy, replica, boot, pair, arm FROM block_time FINAL WHERE {where})
        ORDER BY epoch, policy, replica, boot, pair, arm, class, k"""


def block_classes(where: str = EVERYTHING) -> str:
    """Every block by class: how long its requests waited for their tokens. [1]

    Table `block_class`, by the times `first_at` and `last_at` of its block in `block_time`.
    """
    return f"""
        SELECT * EXCEPT (version) FROM block_class FINAL
        WHERE (epoch, policy, replica, boot, pair, arm) IN (
            SELECT epoch, policy, replica, boot, pair, arm FROM block_time FINAL WHERE {where})
        ORDER BY epoch, policy, replica, boot, pair, arm, class"""


def throughput_by_arm(where: str = EVERYTHING) -> str:
    """Tokens per second of each arm's blocks, by what ran in them and the load. [tokens/s]

    Table `block_time`, times `first_at` and `last_at`. Sums over blocks, so without an
    interval: the evaluator pairs them.
    """
    return f"""
        SELECT arrayStringConcat(classes, ', ') AS classes, {LOAD.sql("requests")} AS load, arm,
            count() AS blocks, sum(emitted) / sum(wall_us) * 1e6 AS tokens_per_second
        FROM block_time FINAL WHERE {where}
        GROUP BY classes, load, arm ORDER BY classes, load, arm"""


def ended_requests(where: str = EVERYTHING, most: int = 10_000) -> str:
    """The first requests of a period that ended, for a trace: when, how long, how sampled. [1]

    Table `request`, time `admitted_at`, which comes out in ns since 1970.
    """
    return f"""
        SELECT toUnixTimestamp64Nano(admitted_at) AS admitted_at, class, session, prompt_tokens,
            output_tokens, temperature, top_p
        FROM (SELECT * FROM request FINAL WHERE {where})
        WHERE isNotNull(output_tokens) AND output_tokens > 0
        ORDER BY admitted_at, replica, boot, request LIMIT {most:d}"""


def _parts() -> str:
    return ",\n            ".join(f"{_mean(f'{part}_us')} AS {part}" for part in PARTS)


def _mean(column: str) -> str:
    """Of a round, in ms; `m` is minute_time."""
    return f"{_whole(f'm.{column}')} / sum(m.rounds) / 1000"


def _whole(column: str) -> str:
    """Sum of a column, unknown where any part of it is: the rest would pass for the whole."""
    return f"if(countIf(isNull({column})) = 0, sum({column}), NULL)"
