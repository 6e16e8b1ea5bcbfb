"""Blocks of many replicas added up, for a fleet whose single blocks would not fit into memory.

Pairs are numbered by time, so pairs of one number ran at once on every replica. Those that
served the same kind of traffic, ran the same arms and know the same quantities become one: sums
of sums, so every ratio stays what it was, with the pair's number as the cluster, which allows for
what a whole fleet shares at one time. Part of `queries`, by the same rules, and called through it.
"""

from __future__ import annotations

from specscope.queries.blocks import standing
from specscope.queries.delivery import EVERYTHING
from specscope.store.rollups import BlockTimeRow
from specscope_hook.columns import columns

PAIR = "epoch, policy, replica, boot, pair"
NEARLY_ALL = 0.9  # of a pair's request-rounds that share a bucket; as in evaluate.segments
SPILL = 0.05  # proposals a round beyond an arm's draft length; as in evaluate.checks

# Arrivals a second by doublings: replicas of one traffic whose loads are alike. A load
# is this rate times a number that all pairs of one epoch and kind share (evaluate.segments).
RATE = """toInt32(round(log2(greatest(sum(requests), 1) / greatest(1e-9 * sum(
                    toUnixTimestamp64Nano(last_at) - toUnixTimestamp64Nano(first_at)), 1e-3))))"""

# Each thread keeps the histograms of all groups: two hold half as much again, sixteen far more.
ONE_THREAD = "SETTINGS max_threads = 1"

_NULLABLE = [c.name for c in columns(BlockTimeRow) if c.nullable]
_COUNTED = (("gap", "bins"), ("tpot", "bins"), ("admitted", "kinds"))
_OWN_RULE = {"epoch", "policy", "replica", "boot", "pair", "arm", "classes", "k", "first_at"}
_OWN_RULE |= {"last_at", "computed_at", "version"} | {
    f"{what}_{part}" for what, names in _COUNTED for part in (names, "counts")
}
_SUMMED = [c.name for c in columns(BlockTimeRow) if c.name not in _OWN_RULE]


def block_count(where: str = EVERYTHING) -> str:
    """How many blocks there are. [blocks]

    Table `block_time`, times `first_at` and `last_at`. No row where there is none.
    """
    return f"SELECT count() AS blocks FROM {standing(where)} HAVING blocks > 0"


def pooled_blocks(where: str = EVERYTHING) -> str:
    """Blocks as `blocks` gives them, those of one time and kind added up over replicas. [1]

    Table `block_time`, times `first_at` and `last_at`; they come out in ns since 1970, as far
    apart as in the mean block. `merged` is how many blocks a row holds; `replica` names the kind.
    """
    sums = ",\n            ".join(f"sum(b.{name}) AS {name}" for name in _SUMMED)
    histograms = ",\n            ".join(
        f"(sumMap(b.{what}_{names}, b.{what}_counts) AS {what}).1 AS {what}_{names},"
        f" {what}.2 AS {what}_counts"
        for what, names in _COUNTED
    )
    names = ", ".join(_SUMMED)
    return f"""
        SELECT epoch, policy, pool AS replica, '' AS boot, pair, arm, classes, k, {names},
            gap_bins, gap_counts, tpot_bins, tpot_counts, admitted_kinds, admitted_counts,
            first_at, first_at + intDiv(spans, merged) AS last_at, merged
        FROM (
        SELECT epoch, policy, pool, pair, arm,
            arraySort(groupUniqArrayArray(b.classes)) AS classes, max(b.k) AS k,
            {sums},
            {histograms},
            min(toUnixTimestamp64Nano(b.first_at)) AS first_at,
            sum(toUnixTimestamp64Nano(b.last_at) - toUnixTimestamp64Nano(b.first_at)) AS spans,
            count() AS merged
        FROM (SELECT * FROM {standing(where)}) AS b
        INNER JOIN ({_pools(where)}) AS p USING ({PAIR})
        GROUP BY epoch, policy, pool, pair, arm
        )
        ORDER BY epoch, policy, pool, pair, arm {ONE_THREAD}"""


def pooled_parts(where: str = EVERYTHING) -> str:
    """Parts of blocks as `block_parts` gives them, added up over replicas alike. [1]

    Table `block_time`, times `first_at` and `last_at`: the parts of the blocks that it chooses.
    """
    return f"""
        SELECT epoch, policy, pool AS replica, '' AS boot, pair, arm, class, context_bucket,
            output_bucket, k, request_rounds, proposed, accepted, emitted, tested, kept, censored,
            requests, rounds_of.1 AS kinds, rounds_of.2 AS kind_rounds,
            arrayMap(kind -> emitted_of[kind], kinds) AS kind_emitted,
            arrayMap(kind -> tested_of[kind], kinds) AS kind_tested,
            arrayMap(kind -> kept_of[kind], kinds) AS kind_kept
        FROM (
        SELECT epoch, policy, pool, pair, arm, class, context_bucket, output_bucket, k,
            sum(b.request_rounds) AS request_rounds, sum(b.proposed) AS proposed,
            sum(b.accepted) AS accepted, sum(b.emitted) AS emitted,
            sumForEach(b.tested) AS tested, sumForEach(b.kept) AS kept,
            sum(b.censored) AS censored, sum(b.requests) AS requests,
            sumMap(b.kinds, b.kind_rounds) AS rounds_of,
            sumMap(mapFromArrays(b.kinds, b.kind_emitted)) AS emitted_of,
            sumMap(mapFromArrays(b.kinds, b.kind_tested)) AS tested_of,
            sumMap(mapFromArrays(b.kinds, b.kind_kept)) AS kept_of
        FROM (SELECT * FROM block_part FINAL WHERE request_rounds > 0) AS b
        INNER JOIN ({_pools(where)}) AS p USING ({PAIR})
        GROUP BY epoch, policy, pool, pair, arm, class, context_bucket, output_bucket, k
        )
        ORDER BY epoch, policy, pool, pair, arm, class, context_bucket, output_bucket, k
        {ONE_THREAD}"""


def pooled_classes(where: str = EVERYTHING) -> str:
    """Classes of blocks as `block_classes` gives them, added up over replicas. [1]

    Table `block_class`, by the times `first_at` and `last_at` of its block in `block_time`.
    `replica` says whether classes shared their blocks; of one that ran `alone`, it says which.
    """
    block = "epoch, policy, replica, boot, pair, arm"
    return f"""
        SELECT epoch, policy, pool AS replica, '' AS boot, pair, arm, class, requests,
            tpots.1 AS tpot_bins, tpots.2 AS tpot_counts
        FROM (
        SELECT epoch, policy, pair, arm, class,
            if(t.shared, 'shared', concat('alone ', class)) AS pool,
            sum(b.requests) AS requests, sumMap(b.tpot_bins, b.tpot_counts) AS tpots
        FROM (SELECT * FROM block_class FINAL WHERE requests > 0) AS b
        INNER JOIN (
            SELECT {block}, length(classes) > 1 AS shared FROM {standing(where)}
        ) AS t USING ({block})
        GROUP BY epoch, policy, pair, arm, class, pool
        )
        ORDER BY epoch, policy, pool, pair, arm, class {ONE_THREAD}"""


def _pools(where: str) -> str:
    """The kind of each pair: its traffic, its arms, what is unknown, and what speaks against it."""
    unknown = ", ".join(f"isNull({name})" for name in _NULLABLE)
    beyond = f"""match(arm, '^k[0-9]+$')
                    AND proposed > (toUInt32OrZero(substring(arm, 2)) + {SPILL}) * request_rounds"""
    return f"""
        SELECT {PAIR}, concat('pool ', hex(cityHash64(
            arms, ran, load, ifNull(context, ''), ifNull(output, '')))) AS pool
        FROM (
            SELECT {PAIR}, arraySort(groupUniqArrayArray(classes)) AS ran,
                {RATE} AS load,
                arraySort(groupArray((arm, cityHash64({unknown}, emitted = 0, {beyond})))) AS arms
            FROM {standing(where)} GROUP BY {PAIR}
        ) AS t
        LEFT ANY JOIN ({_shared("context")}) AS c USING ({PAIR})
        LEFT ANY JOIN ({_shared("output")}) AS o USING ({PAIR})"""


def _shared(what: str) -> str:
    """The bucket of nearly all of a pair's request-rounds; empty if there is none."""
    return f"""
        SELECT {PAIR}, if(max(weight) >= {NEARLY_ALL} * sum(weight), argMax(bucket, weight), '')
            AS {what}
        FROM (
            SELECT {PAIR}, {what}_bucket AS bucket, sum(request_rounds) AS weight
            FROM block_part FINAL GROUP BY {PAIR}, bucket
        )
        GROUP BY {PAIR}"""
