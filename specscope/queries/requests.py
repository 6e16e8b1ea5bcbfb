"""What requests waited and asked for. Part of `queries`, by the same rules, called through it."""

from __future__ import annotations

from specscope.queries.delivery import EVERYTHING


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
