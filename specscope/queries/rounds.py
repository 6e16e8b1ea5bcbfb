"""What rounds cost, and where they ran. Part of `queries`, by the same rules, called through it."""

from __future__ import annotations

from specscope.queries.delivery import EVERYTHING

# Columns of one part of a round each, in the order in which they are drawn.
PARTS = ("draft", "verify", "sample", "idle", "catchup", "prefill")


def replicas(where: str = EVERYTHING) -> str:
    """Replicas that ran rounds. [1]

    Table `minute_time`, time `minute`.
    """
    return f"SELECT DISTINCT replica FROM minute_time WHERE {where} ORDER BY replica"


def policies_followed(where: str = EVERYTHING) -> str:
    """The policy of each replica's newest round, and when it ran. [1]

    Table `round`, time `started_at`, which comes out in ns since 1970.
    """
    return f"""
        SELECT replica, argMax(policy, started_at) AS policy,
            toUnixTimestamp64Nano(max(started_at)) AS last_at
        FROM round WHERE {where}
        GROUP BY replica ORDER BY replica"""


def arms_drafted(where: str = EVERYTHING) -> str:
    """What each arm of a replica proposed, over the sequences of its rounds. [tokens]

    Table `round`, time `started_at`.
    """
    return f"""
        SELECT replica, arm, sum(batch) AS sequences, sum(proposed) AS proposed
        FROM round FINAL WHERE isNotNull(arm) AND ({where})
        GROUP BY replica, arm ORDER BY replica, arm"""


def classes(where: str = EVERYTHING) -> str:
    """Classes that ran rounds. [1]

    Table `minute`, time `minute`.
    """
    return f"SELECT DISTINCT class FROM minute WHERE {where} ORDER BY class"


def break_even(where: str = EVERYTHING) -> str:
    """Tokens per round with speculation, and what a round's time asks for, by minute. [tokens]

    Table `minute_time`, time `minute`. `needed` is the mean time of a speculative round over
    that of a target-only round in the same minute: unknown if no target-only round ran.
    Batches of the two may differ, so this shows, and only randomised blocks decide.
    """
    return f"""
        SELECT minute,
            sumIf(emitted, k > 0) / nullIf(sumIf(batch, k > 0), 0) AS tokens_per_round,
            (sumIf(wall_us, k > 0) / nullIf(sumIf(rounds, k > 0), 0))
                / nullIf(sumIf(wall_us, k = 0) / nullIf(sumIf(rounds, k = 0), 0), 0) AS needed
        FROM minute_time FINAL WHERE {where}
        GROUP BY minute ORDER BY minute"""


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


def device(where: str = EVERYTHING) -> str:
    """What devices reported, by minute: mean of each field in its own unit. [1]

    Table `device`, time `sampled_at`. A field without values names the reason instead.
    """
    return f"""
        SELECT toDateTime64(toStartOfMinute(sampled_at), 3, 'UTC') AS minute, replica, uuid, field,
            any(unit) AS unit, avg(value) AS value, anyIf(reason, reason != '') AS reason
        FROM device FINAL WHERE {where}
        GROUP BY minute, replica, uuid, field ORDER BY minute, replica, uuid, field"""


def device_summary(where: str = EVERYTHING) -> str:
    """Each field of the sampled devices: its mean, and what 90 % of its values lie between. [1]

    Table `device`, time `sampled_at`. Counters that only rise, bits, and what engines say of
    themselves are left out. `devices` gave values; of a field that no device gave, `reason` says
    why.
    """
    return f"""
        SELECT field, any(unit) AS unit, uniqIf((replica, uuid), isNotNull(d.value)) AS devices,
            avg(d.value) AS mean, quantile(0.05)(d.value) AS low, quantile(0.95)(d.value) AS high,
            if(devices > 0, '', anyIf(reason, reason != '')) AS reason
        FROM (SELECT * FROM device FINAL WHERE {where}) AS d
        WHERE field NOT IN ('energy', 'clock_event_reasons') AND NOT startsWith(field, 'engine_')
        GROUP BY field ORDER BY field"""


def engine_sums(where: str = EVERYTHING) -> str:
    """What engines without a hook say of themselves, over all intervals. [1]

    Table `device`, time `sampled_at`. A value that an engine does not say is unknown. `seconds` are
    those in which tokens were counted.
    """
    sums = ", ".join(
        f"sumIf(value, field = 'engine_{field}') AS {name}" for name, field in _ENGINE_SUMS.items()
    )
    return f"""
        SELECT replica, {sums},
            sumIf(window_ms, field = 'engine_generation_tokens' AND isNotNull(value)) / 1e3
                AS seconds
        FROM (SELECT * FROM device FINAL WHERE startsWith(field, 'engine_') AND ({where}))
        GROUP BY replica ORDER BY replica"""


_ENGINE_SUMS = {
    "drafts": "drafts",
    "proposed": "proposed",
    "accepted": "accepted",
    "tokens": "generation_tokens",
    "request_rounds": "request_rounds",
    "passes": "passes",
    "missed": "passes_missed",
    "pass_ms": "pass_ms",
}


THROTTLING = {
    "power limit": 0x04,
    "heat": 0x20 | 0x40,
    "hardware slowdown": 0x08 | 0x80,
}
"""Why a device runs slower than it can, by the bits of NVML's clock event reasons."""


def throttling(where: str = EVERYTHING) -> str:
    """Share of samples in which a device ran slower than it can, by cause. [share]

    Table `device`, time `sampled_at`. No row if no device says.
    """
    shares = ", ".join(
        f"('{cause}', avg(bitAnd(toUInt64(value), {bits}) != 0), "
        f"uniqIf((replica, uuid), bitAnd(toUInt64(value), {bits}) != 0))"
        for cause, bits in THROTTLING.items()
    )
    return f"""
        SELECT row.1 AS cause, row.2 AS share, row.3 AS devices
        FROM (
            SELECT [{shares}] AS causes, count() AS samples
            FROM device FINAL
            WHERE field = 'clock_event_reasons' AND isNotNull(value) AND ({where})
            HAVING samples > 0
        )
        ARRAY JOIN causes AS row
        ORDER BY cause"""


def _parts() -> str:
    return ",\n            ".join(f"{_mean(f'{part}_us')} AS {part}" for part in PARTS)


def _mean(column: str) -> str:
    """Of a round, in ms; `m` is minute_time."""
    return f"{_whole(f'm.{column}')} / sum(m.rounds) / 1000"


def _whole(column: str) -> str:
    """Sum of a column, unknown if any part of it is: the rest would pass for the whole."""
    return f"if(countIf(isNull({column})) = 0, sum({column}), NULL)"
