"""The blocks of experiments. Call these functions through `queries`, whose rules they follow."""

from __future__ import annotations

from specscope.queries.delivery import EVERYTHING
from specscope.store.buckets import LOAD


def standing(where: str = EVERYTHING) -> str:
    """FROM and WHERE of the blocks that a condition chooses, each once.

    If the epoch of a boot comes late, its rounds leave an empty row of their block; it is skipped.
    """
    return f"block_time FINAL WHERE rounds > 0 AND ({where})"


def blocks(where: str = EVERYTHING) -> str:
    """Every block, as the evaluator reads it: a row of `block_time`. [1]

    Table `block_time`, times `first_at` and `last_at`; they come out in ns since 1970.
    """
    return f"""
        SELECT * EXCEPT (version, computed_at) REPLACE (
            toUnixTimestamp64Nano(first_at) AS first_at, toUnixTimestamp64Nano(last_at) AS last_at)
        FROM (SELECT * FROM {standing(where)})
        ORDER BY epoch, policy, replica, boot, pair, arm"""


def block_parts(where: str = EVERYTHING) -> str:
    """Every block by segment and draft length, as the evaluator reads it. [1]

    Table `block_time`, times `first_at` and `last_at`: the parts of the blocks that it chooses.
    """
    return f"""
        SELECT * EXCEPT (version, computed_at) FROM block_part FINAL
        WHERE request_rounds > 0 AND (epoch, policy, replica, boot, pair, arm) IN (
            SELECT epoch, policy, replica, boot, pair, arm FROM {standing(where)})
        ORDER BY epoch, policy, replica, boot, pair, arm, class, context_bucket, output_bucket, k"""


def block_classes(where: str = EVERYTHING) -> str:
    """Every block by class: how long its requests waited for their tokens. [1]

    Table `block_class`, by the times `first_at` and `last_at` of its block in `block_time`.
    """
    return f"""
        SELECT * EXCEPT (version, computed_at) FROM block_class FINAL
        WHERE requests > 0 AND (epoch, policy, replica, boot, pair, arm) IN (
            SELECT epoch, policy, replica, boot, pair, arm FROM {standing(where)})
        ORDER BY epoch, policy, replica, boot, pair, arm, class"""


def throughput_by_arm(where: str = EVERYTHING) -> str:
    """Tokens per second of each arm's blocks, by what ran in them and the load. [tokens/s]

    Table `block_time`, times `first_at` and `last_at`. The sums carry no
    confidence interval, because only the evaluator pairs blocks.
    """
    return f"""
        SELECT arrayStringConcat(classes, ', ') AS classes, {LOAD.sql("requests")} AS load, arm,
            count() AS blocks, sum(emitted) / sum(wall_us) * 1e6 AS tokens_per_second
        FROM {standing(where)}
        GROUP BY classes, load, arm ORDER BY classes, load, arm"""
