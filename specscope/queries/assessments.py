"""The verdicts that the service wrote down. Part of `queries`, by the same rules."""

from __future__ import annotations

from specscope.queries.blocks import standing
from specscope.queries.delivery import EVERYTHING


def verdicts(where: str = EVERYTHING) -> str:
    """The newest verdict on each segment, as the report and the gate give it. [1]

    Table `assessment`, time `assessed_at`. A verdict pools the replicas of its epoch, so no
    condition can name one. Speedup: the ratio of the deciding arm to
    its baseline.
    """
    where = f"({where}) AND design != 'replay'"  # which has a time of its own
    return f"""
        SELECT if(class = '', 'mixed', class) AS label,
            if(context = '', 'mixed', context) AS context,
            if(output = '', 'mixed', output) AS output, if(load = '', 'unknown', load) AS load,
            action, k, speedup, low, high, pairs, pairs_needed, grade, confidence, cause, epoch
        FROM assessment FINAL
        WHERE {where} AND assessed_at = (SELECT max(assessed_at) FROM assessment WHERE {where})
        ORDER BY design, epoch, label, context, output, load"""


def verdict_history(where: str = EVERYTHING) -> str:
    """The last verdict of each day on each segment, oldest first. [1]

    Table `assessment`, time `assessed_at`, which comes out in ns since 1970. Speedup: of `arm`
    over `baseline`.
    """
    of_day = (
        "action", "k", "arm", "baseline", "speedup", "low", "high", "pairs", "grade", "metric",
    )  # fmt: skip
    # In a tuple, since argMax leaves out rows whose value is unknown.
    last = ", ".join(f"last.{place} AS {name}" for place, name in enumerate(of_day, start=1))
    return f"""
        SELECT toUnixTimestamp64Nano(at) AS assessed_at, design, epoch, class, context, output,
            load, {last}
        FROM (
            SELECT toDate(a.assessed_at) AS day, design, epoch, class, context, output, load,
                max(a.assessed_at) AS at, argMax(tuple({", ".join(of_day)}), a.assessed_at) AS last
            FROM (SELECT * FROM assessment FINAL WHERE ({where}) AND design != 'replay') AS a
            GROUP BY day, design, epoch, class, context, output, load
        )
        ORDER BY assessed_at, design, epoch, class, context, output, load"""


def replays(where: str = EVERYTHING) -> str:
    """Verdicts of replays that were kept, the oldest first, each as a row. [1]

    Table `assessment`, time `assessed_at`, which comes out in ns since 1970. Speedup: of `arm`
    over `baseline`, as a client saw it.
    """
    return f"""
        SELECT toUnixTimestamp64Nano(assessed_at) AS at, epoch, class, arm, baseline, action, k,
            grade, confidence, metric, speedup, low, high,
            JSONExtractUInt(body, 'replay', 'requests') AS requests,
            JSONExtractString(body, 'replay', 'trace_sha256') AS trace
        FROM assessment FINAL
        WHERE ({where}) AND design = 'replay'
        ORDER BY at, epoch, class"""


def evidence_state(where: str = EVERYTHING) -> str:
    """What changes when evidence does: blocks, their newest computation, the newest policy. [1]

    Table `block_time`, times `first_at` and `last_at`. Without a block there is no row. The
    condition is on blocks alone, since the newest policy is in force for all of them.
    """
    return f"""
        SELECT count() AS blocks, max(version) AS newest,
            (SELECT max(policy) FROM policy) AS policy
        FROM {standing(where)}
        HAVING blocks > 0"""
