"""The verdicts that the service wrote down. Part of `queries`, by the same rules."""

from __future__ import annotations

from specscope.queries.delivery import EVERYTHING


def verdicts(where: str = EVERYTHING) -> str:
    """The newest verdict on each segment, as the report and the gate give it. [1]

    Table `assessment`, time `assessed_at`. A verdict pools the replicas of its epoch, so no
    condition can name one. Speedup: of the arm that decides over its baseline.
    """
    return f"""
        SELECT if(class = '', 'mixed', class) AS label,
            if(context = '', 'mixed', context) AS context,
            if(output = '', 'mixed', output) AS output, if(load = '', 'unknown', load) AS load,
            action, k, speedup, low, high, pairs, pairs_needed, grade, confidence, cause, epoch
        FROM assessment FINAL
        WHERE ({where}) AND assessed_at = (SELECT max(assessed_at) FROM assessment WHERE {where})
        ORDER BY design, epoch, label, context, output, load"""


def evidence_state(where: str = EVERYTHING) -> str:
    """What changes when evidence does: blocks, their newest computation, the newest policy. [1]

    Table `block_time`, times `first_at` and `last_at`. Without a block there is no row. The
    condition is on blocks alone, since the newest policy is in force for all of them.
    """
    return f"""
        SELECT count() AS blocks, max(version) AS newest,
            (SELECT max(policy) FROM policy) AS policy
        FROM block_time FINAL
        WHERE {where}
        HAVING blocks > 0"""
