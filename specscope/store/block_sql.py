"""SQL that rolls raw rows, with FINAL, into one row per block and segment.

Each statement has bound parameters, named in a comment, and writes rows of version {version}.
`rollup_sql` has the parts that minutes and hours share.
"""

from __future__ import annotations

from specscope.store.buckets import CONTEXT, OUTPUT
from specscope.store.rollup_sql import (
    BOOTS,
    POSITIONS,
    ROUNDS_OF_PARTS,
    SPAN,
    TIMES,
    insert,
    left,
    log_bin,
    named,
    of,
    whole_sum,
)

# {policies}, {replicas}, {boots}, {pairs}, {arms}: arrays, one entry a block; {from}, {to}
# bound where its rows may lie; {kept_from}: a block whose beginning has aged out is left alone.
CHOSEN = """(assumeNotNull(policy), replica, boot, assumeNotNull(pair), assumeNotNull(arm)) IN (
            SELECT arrayJoin(arrayZip({policies:Array(UInt32)}, {replicas:Array(String)},
                {boots:Array(String)}, {pairs:Array(UInt32)}, {arms:Array(String)})))
        AND isNotNull(policy) AND isNotNull(pair) AND isNotNull(arm)"""

BLOCK_KEY = """assumeNotNull(policy) AS policy_, replica, boot, assumeNotNull(pair) AS pair_,
        assumeNotNull(arm) AS arm_"""

# Rounds of the chosen blocks after their burn-in.
SETTLED = f"""
    SELECT * FROM (SELECT * FROM round FINAL WHERE {SPAN} AND {CHOSEN}) AS r
    LEFT ANY JOIN (SELECT policy AS policy_of, burn_in_ms FROM policy FINAL) AS p
        ON assumeNotNull(r.policy) = p.policy_of
    WHERE ifNull(block_age_ms, 0) >= ifNull(burn_in_ms, 0)"""

# Requests with the lengths of the block that they were admitted in.
IN_BLOCKS = f"""
    SELECT * FROM (
        SELECT * FROM request FINAL
        WHERE admitted_at >= fromUnixTimestamp64Nano({{from:Int64}}, 'UTC')
            AND admitted_at < fromUnixTimestamp64Nano({{to:Int64}}, 'UTC')
            AND {CHOSEN}
    ) AS r
    LEFT ANY JOIN (SELECT policy AS policy_of, block_ms, burn_in_ms FROM policy FINAL) AS p
        ON assumeNotNull(r.policy) = p.policy_of"""

# Requests that have a time per output token, and the bin of it. Those admitted in the beginning of
# a block, or as long before its end, ran beside the other arm's requests, or under the other arm.
# Never by when they ended: that would leave out the long ones. Blocks begin at multiples of their
# length since 1970.
TIMED = """(ifNull(output_tokens, 0) > 1 AND isNotNull(decode_ms) AND (ifNull(block_ms, 0) = 0
            OR toUnixTimestamp64Milli(admitted_at) % block_ms BETWEEN ifNull(burn_in_ms, 0)
                AND block_ms - ifNull(burn_in_ms, 0)))"""
TPOT_BIN = log_bin("ifNull(decode_ms, 1) / greatest(ifNull(output_tokens, 2) - 1, 1)")

DRAM = "(isNotNull(r.dram_active) AND isNotNull(r.wall_us))"

# What may make a request's acceptance its own: its adapter, a grammar.
KIND = """trim(BOTH ' ' FROM
            concat(ifNull(q.adapter, ''), if(ifNull(q.guided, false), ' guided', '')))"""

BLOCK = ("policy", "replica", "boot", "pair", "arm")
GROUPED = "GROUP BY policy_, replica, boot, pair_, arm_"
KEPT = "fromUnixTimestamp64Nano({kept_from:Int64}, 'UTC')"


# The round with which each chosen block's burn-in is over.
FIRST_SETTLED = f"""
    SELECT {BLOCK_KEY}, min(seq) AS settled_seq, min(started_at) AS first_at
    FROM ({SETTLED}) AS r
    {GROUPED}"""


def of_block(row: str) -> dict[str, str]:
    """Columns of a row's block; rows of BLOCK_KEY have other names for three of them."""
    return {"epoch": "ifNull(b.epoch, '')"} | {
        name: f"{row}.{name}" if name in ("replica", "boot") else f"{row}.{name}_" for name in BLOCK
    }


def same_block(one: str, other: str) -> str:
    """Join condition for rows of one block."""
    ours, theirs = of_block(one), of_block(other)
    return " AND ".join(f"{ours[name]} = {theirs[name]}" for name in BLOCK)


OF_ROUNDS = {
    "rounds": "count()",
    "request_rounds": "sum(r.batch)",
    "classes": "arraySort(groupUniqArrayArray(r.classes))",
    "k": "max(r.k)",
    **TIMES,
    **{
        name: f"sum(r.{name})"
        for name in (
            "n_q",
            "n_kv",
            "proposed",
            "accepted",
            "emitted",
            "prefill_tokens",
            "padded_tokens",
            "invalid",
            "preempted",
            "waiting",
        )
    },
    "waiting_first": "argMin(r.waiting, r.started_at)",
    "waiting_last": "argMax(r.waiting, r.started_at)",
    "first_at": "min(r.started_at)",
    "last_at": "max(r.started_at)",
    "full_tokens": "sum(r.batch * (r.k + 1))",
    "model_bytes": whole_sum("model_bytes"),
    "dram_busy_us": f"if(countIf({DRAM}) = 0, NULL, sumIf(r.dram_active * r.wall_us, {DRAM}))",
    "dram_seen_us": f"if(countIf({DRAM}) = 0, NULL, sumIf(r.wall_us, {DRAM}))",
}
"""Of a block, from its rounds."""

TPOTS = f"sumMap(if({TIMED}, [{TPOT_BIN}], []), if({TIMED}, [toUInt64(1)], []))"

# Requests admitted after the burn-in of their block, and what was known of each then: neither
# depends on the arm, however long the queue is.
SETTLED_ADMISSION = """(ifNull(block_ms, 0) = 0
            OR toUnixTimestamp64Milli(admitted_at) % block_ms >= ifNull(burn_in_ms, 0))"""
ADMITTED_KIND = f"""concat(toString(class), ' ', {CONTEXT.sql("prompt_tokens")}, ' ',
            {OUTPUT.sql("requested_output")})"""
MIX = f"""sumMap(if({SETTLED_ADMISSION}, [{ADMITTED_KIND}], []),
            if({SETTLED_ADMISSION}, [toUInt64(1)], []))"""

OF_REQUESTS = {
    "requests": "count()",
    "prompt_tokens": "sum(r.prompt_tokens)",
    "cached_tokens": "if(countIf(isNull(r.cached_tokens)) = 0, sum(r.cached_tokens), NULL)",
    "ended_requests": "countIf(isNotNull(r.output_tokens))",
    "output_tokens": "sum(r.output_tokens)",
    "ttft_us": "if(countIf(isNotNull(r.ttft_ms)) = 0, NULL, 1000 * sum(r.ttft_ms))",
    "first_tokens": "countIf(isNotNull(r.ttft_ms))",
}
"""Of a block, from the requests admitted in it."""

BLOCK_TIME = insert(
    "block_time",
    {
        **of_block("t"),
        **of("t", OF_ROUNDS),
        **of("q", OF_REQUESTS),
        "requests": "ifNull(q.requests_, 0)",
        "gap_bins": "g.gaps.1",
        "gap_counts": "g.gaps.2",
        "tpot_bins": "q.tpots.1",
        "tpot_counts": "q.tpots.2",
        "admitted_kinds": "q.mix.1",
        "admitted_counts": "q.mix.2",
        "computed_at": "now64(9)",
    },
    f"""FROM (
    SELECT {BLOCK_KEY}, {named(OF_ROUNDS)}
    FROM ({SETTLED}) AS r
    {GROUPED}
    HAVING first_at_ >= {KEPT}
) AS t
LEFT ANY JOIN (
    SELECT {BLOCK_KEY}, {named(OF_REQUESTS)}, {TPOTS} AS tpots, {MIX} AS mix
    FROM ({IN_BLOCKS}) AS r
    {GROUPED}
) AS q ON {same_block("t", "q")}
LEFT ANY JOIN (
    SELECT p.policy_ AS policy_, p.replica AS replica, p.boot AS boot, p.pair_ AS pair_,
        p.arm_ AS arm_, sumMap(p.gap_bins, arrayMap(x -> toUInt64(x), p.gap_counts)) AS gaps
    FROM (
        SELECT {BLOCK_KEY}, first_seq, gap_bins, gap_counts FROM request_part FINAL
        WHERE {SPAN} AND {CHOSEN}
    ) AS p
    INNER JOIN ({FIRST_SETTLED}) AS s ON {same_block("p", "s")}
    WHERE p.first_seq >= s.settled_seq
    {GROUPED}
) AS g ON {same_block("t", "g")}
LEFT ANY JOIN {BOOTS} AS b ON t.replica = b.replica AND t.boot = b.boot
SETTINGS join_use_nulls = 1""",
)

SEGMENT = ("class", "context_bucket", "output_bucket")
# Rounds, tokens, and rounds that tested and that kept the first position, by kind.
BY_KIND = """sumMap([kind], [n], [n * e],
        [if(v > 0 AND (e >= a + 1 OR (a > 0 AND e > 0)), n, 0)],
        [if(v > 0 AND a > 0 AND e > 0, n, 0)])"""

BLOCK_PART = insert(
    "block_part",
    {
        "epoch": "epoch",
        "policy": "policy_",
        "replica": "replica",
        "boot": "boot",
        "pair": "pair_",
        "arm": "arm_",
        **{name: name for name in SEGMENT},
        "k": "k_",
        **POSITIONS,
        "censored": "sum(if(e < a + 1 AND least(a, e) < v, n, 0))",
        "requests": "uniqExactMerge(who)",
        "kinds": f"({BY_KIND} AS by_kind).1",
        "kind_rounds": "by_kind.2",
        "kind_emitted": "by_kind.3",
        "kind_tested": "by_kind.4",
        "kind_kept": "by_kind.5",
        "computed_at": "now64(9)",
    },
    f"""FROM (
    SELECT ifNull(b.epoch, '') AS epoch, p.policy_ AS policy_, p.replica AS replica,
        p.boot AS boot, p.pair_ AS pair_, p.arm_ AS arm_, p.class AS class,
        {CONTEXT.sql("q.prompt_tokens")} AS context_bucket,
        if(isNull(q.prompt_tokens), 'unknown', {OUTPUT.sql("q.requested_output")}) AS output_bucket,
        {KIND} AS kind, k_, v, a, e, count() AS n, uniqExactState(p.request) AS who
    FROM (
        SELECT {BLOCK_KEY}, request, class, first_seq, k_, v, a, e
        FROM request_part FINAL {ROUNDS_OF_PARTS}
        WHERE {SPAN} AND {CHOSEN}
    ) AS p
    INNER JOIN (
        SELECT * FROM ({FIRST_SETTLED}) WHERE first_at >= {KEPT}
    ) AS s ON {same_block("p", "s")}
    LEFT ANY JOIN (
        SELECT replica, boot, request, any(prompt_tokens) AS prompt_tokens,
            any(requested_output) AS requested_output, any(adapter) AS adapter,
            any(guided) AS guided
        FROM request
        WHERE admitted_at >= fromUnixTimestamp64Nano({{from:Int64}}, 'UTC')
            AND admitted_at < fromUnixTimestamp64Nano({{to:Int64}}, 'UTC')
        GROUP BY replica, boot, request
    ) AS q ON p.replica = q.replica AND p.boot = q.boot AND p.request = q.request
    LEFT ANY JOIN {BOOTS} AS b ON p.replica = b.replica AND p.boot = b.boot
    WHERE p.first_seq >= s.settled_seq
    GROUP BY epoch, policy_, replica, boot, pair_, arm_, {", ".join(SEGMENT)}, kind, k_, v, a, e
)
GROUP BY epoch, policy_, replica, boot, pair_, arm_, {", ".join(SEGMENT)}, k_
SETTINGS join_use_nulls = 1""",
)

BLOCK_CLASS = insert(
    "block_class",
    {
        **of_block("q"),
        "class": "q.class",
        "requests": "q.requests",
        "tpot_bins": "q.tpots.1",
        "tpot_counts": "q.tpots.2",
        "computed_at": "now64(9)",
    },
    f"""FROM (
    SELECT {BLOCK_KEY}, class, count() AS requests, {TPOTS} AS tpots
    FROM ({IN_BLOCKS})
    GROUP BY policy_, replica, boot, pair_, arm_, class
    HAVING min(admitted_at) >= {KEPT}
) AS q
LEFT ANY JOIN {BOOTS} AS b ON q.replica = b.replica AND q.boot = b.boot
SETTINGS join_use_nulls = 1""",
)

# Those that the chosen blocks may be in: a boot has one epoch, and none until it is known. What is
# named first is the tables' key, so that no other block is read.
OF_CHOSEN = f"""epoch IN (
            SELECT '' UNION ALL
            SELECT epoch FROM boot
            WHERE replica IN {{replicas:Array(String)}} AND boot IN {{boots:Array(String)}})
        AND policy IN {{policies:Array(UInt32)}} AND replica IN {{replicas:Array(String)}}
        AND {CHOSEN}"""

COMPUTED = {"computed_at": "now64(9)"}
CELL = ("epoch", *BLOCK)
BLOCK_LEFT = (
    left("block_time", CELL, BLOCK, "rounds", OF_CHOSEN, **COMPUTED),
    left("block_part", (*CELL, *SEGMENT, "k"), BLOCK, "request_rounds", OF_CHOSEN, **COMPUTED),
    left("block_class", (*CELL, "class"), BLOCK, "requests", OF_CHOSEN, **COMPUTED),
)
