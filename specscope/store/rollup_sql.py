"""The statements behind `roll`: raw rows with FINAL into one row per key.

Each takes bound parameters, named in its comment, and writes rows of version {version}.
Positions follow evaluator terms: a position is tested where all before it were kept; where
the end of the text cut a round short (emitted < accepted + 1), what lies behind the last
emitted token was never at risk.
"""

from __future__ import annotations

from specscope.store.buckets import CONTEXT, OUTPUT

# Sums whose parts may be unknown are unknown where a part is that was really run: a sum over
# the known ones would pass for the whole.
TIMES = """
    if(countIf(r.wall_us IS NULL) = 0, sum(r.wall_us), NULL) AS wall_us,
    if(countIf(r.draft_us IS NULL AND r.k > 0) = 0, ifNull(sum(r.draft_us), 0), NULL) AS draft_us,
    if(countIf(r.verify_us IS NULL) = 0, sum(r.verify_us), NULL) AS verify_us,
    if(countIf(r.sample_us IS NULL) = 0, sum(r.sample_us), NULL) AS sample_us,
    if(countIf(r.idle_us IS NULL) = 0, sum(r.idle_us), NULL) AS idle_us,
    sum(r.catchup_us) AS catchup_us,
    if(countIf(r.prefill_us IS NULL AND r.prefill_tokens > 0) = 0,
        ifNull(sum(r.prefill_us), 0), NULL) AS prefill_us"""


def log_bin(milliseconds: str) -> str:
    """Bin of a time in a log-histogram: within 1 % of every value that it holds."""
    return f"toInt16(ceil(log(greatest({milliseconds}, 1e-6)) / log(1.01 / 0.99)))"


# A round of a request each: accepted `a`, emitted `e`, and the context when it began `c`.
ROUNDS_OF_PARTS = """
    ARRAY JOIN k AS k_, accepted AS a,
        if(empty(emitted), arrayMap(x -> toUInt8(x + 1), accepted), emitted) AS e,
        arrayMap((after, own) -> context + after - own,
            arrayCumSum(if(empty(emitted), arrayMap(x -> x + 1, accepted), emitted)),
            if(empty(emitted), arrayMap(x -> toUInt8(x + 1), accepted), emitted)) AS c"""

# Over groups of equal k, a and e, of `n` rounds.
POSITIONS = """
    sum(n) AS request_rounds,
    sum(n * k_) AS proposed,
    sum(n * a) AS accepted,
    sum(n * e) AS emitted,
    sumForEach(arrayMap(j -> if(j <= if(e < a + 1, least(a, e), a + 1), n, 0), range(1, k_ + 1)))
        AS tested,
    sumForEach(arrayMap(j -> if(j <= if(e < a + 1, least(a, e), a), n, 0), range(1, k_ + 1)))
        AS kept"""

# {from}, {to}: ns. Whole minutes or hours are rolled at once, for all replicas.
SPAN = """started_at >= fromUnixTimestamp64Nano({from:Int64}, 'UTC')
        AND started_at < fromUnixTimestamp64Nano({to:Int64}, 'UTC')"""

MINUTE = f"""
INSERT INTO minute (minute, replica, class, k, request_rounds, proposed, accepted, emitted,
    tested, kept, accepted_length, context, version)
SELECT minute, replica, class, k_,{POSITIONS},
    sumForEach(arrayMap(i -> if(i = a, n, 0), range(k_ + 1))) AS accepted_length,
    sum(contexts) AS context,
    {{version:UInt64}}
FROM (
    SELECT toStartOfMinute(started_at) AS minute, replica, class, k_, a, e,
        count() AS n, sum(c) AS contexts
    FROM request_part FINAL {ROUNDS_OF_PARTS}
    WHERE {SPAN}
    GROUP BY minute, replica, class, k_, a, e
)
GROUP BY minute, replica, class, k_"""

MINUTE_TIME = f"""
INSERT INTO minute_time (minute, replica, arm, k, rounds, batch, waiting, wall_us, draft_us,
    verify_us, sample_us, idle_us, catchup_us, prefill_us, n_q, n_kv, proposed, accepted, emitted,
    padded_tokens, model_bytes, wall_bins, wall_counts, version)
SELECT toStartOfMinute(started_at) AS minute, replica, arm, k,
    count() AS rounds, sum(r.batch), sum(r.waiting),{TIMES},
    sum(r.n_q), sum(r.n_kv), sum(r.proposed), sum(r.accepted), sum(r.emitted),
    sum(r.padded_tokens),
    if(countIf(r.model_bytes IS NULL) = 0, sum(r.model_bytes), NULL),
    (sumMap(if(isNull(r.wall_us), [], [bin]), if(isNull(r.wall_us), [], [toUInt64(1)])) AS walls).1,
    walls.2,
    {{version:UInt64}}
FROM (SELECT *, {log_bin("ifNull(wall_us, 1) / 1000")} AS bin FROM round FINAL WHERE {SPAN}) AS r
GROUP BY minute, replica, arm, k"""

HOUR = f"""
INSERT INTO hour (hour, epoch, class, context_bucket, arm, k, request_rounds, proposed, accepted,
    emitted, tested, kept, requests, version)
SELECT hour, epoch, class, context_bucket, arm, k_,{POSITIONS},
    uniqExactMerge(who) AS requests,
    {{version:UInt64}}
FROM (
    SELECT toStartOfHour(p.started_at) AS hour, ifNull(b.epoch, '') AS epoch, p.class AS class,
        {CONTEXT.sql("q.prompt_tokens")} AS context_bucket, p.arm AS arm, k_, a, e,
        count() AS n, uniqExactState(p.replica, p.boot, p.request) AS who
    FROM (
        SELECT replica, boot, request, class, arm, started_at, k_, a, e
        FROM request_part FINAL {ROUNDS_OF_PARTS}
        WHERE {SPAN}
    ) AS p
    LEFT ANY JOIN (
        SELECT replica, boot, request, any(prompt_tokens) AS prompt_tokens FROM request
        WHERE admitted_at >= fromUnixTimestamp64Nano({{from:Int64}}, 'UTC') - INTERVAL 1 DAY
            AND admitted_at < fromUnixTimestamp64Nano({{to:Int64}}, 'UTC')
        GROUP BY replica, boot, request
    ) AS q ON p.replica = q.replica AND p.boot = q.boot AND p.request = q.request
    LEFT ANY JOIN (SELECT replica, boot, any(epoch) AS epoch FROM boot GROUP BY replica, boot)
        AS b ON p.replica = b.replica AND p.boot = b.boot
    GROUP BY hour, epoch, class, context_bucket, arm, k_, a, e
)
GROUP BY hour, epoch, class, context_bucket, arm, k_
SETTINGS join_use_nulls = 1"""

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

EPOCHS = "(SELECT replica, boot, any(epoch) AS epoch FROM boot GROUP BY replica, boot)"

BLOCK_TIME = f"""
INSERT INTO block_time (epoch, policy, replica, boot, pair, arm, requests, rounds, request_rounds,
    classes, k, wall_us, draft_us, verify_us, sample_us, idle_us, catchup_us, prefill_us, n_q,
    n_kv, proposed, accepted, emitted, prefill_tokens, padded_tokens, first_at, last_at,
    gap_bins, gap_counts, tpot_bins, tpot_counts, full_tokens, invalid, preempted, model_bytes,
    dram_busy_us, dram_seen_us, prompt_tokens, cached_tokens, ended_requests, output_tokens,
    ttft_us, first_tokens, waiting, computed_at, version)
SELECT ifNull(b.epoch, ''), t.policy_, t.replica, t.boot, t.pair_, t.arm_,
    ifNull(q.requests, 0), t.rounds, t.request_rounds, t.classes, t.k_, t.wall_us, t.draft_us,
    t.verify_us, t.sample_us, t.idle_us, t.catchup_us, t.prefill_us, t.n_q_, t.n_kv_,
    t.proposed_, t.accepted_, t.emitted_, t.prefill_, t.padded_, t.first_at, t.last_at,
    g.gaps.1, g.gaps.2, q.tpots.1, q.tpots.2, t.full_, t.invalid_, t.preempted_, t.bytes_, t.busy_,
    t.seen_, q.prompt_, q.cached_, q.ended_, q.output_, q.ttft_, q.firsts_, t.waiting_,
    now64(9), {{version:UInt64}}
FROM (
    SELECT {BLOCK_KEY},
        count() AS rounds, sum(r.batch) AS request_rounds,
        arraySort(groupUniqArrayArray(r.classes)) AS classes, max(r.k) AS k_,{TIMES},
        sum(r.n_q) AS n_q_, sum(r.n_kv) AS n_kv_, sum(r.proposed) AS proposed_,
        sum(r.accepted) AS accepted_, sum(r.emitted) AS emitted_,
        sum(r.prefill_tokens) AS prefill_, sum(r.padded_tokens) AS padded_,
        sum(r.batch * (r.k + 1)) AS full_, sum(r.invalid) AS invalid_,
        sum(r.preempted) AS preempted_, sum(r.waiting) AS waiting_,
        if(countIf(r.model_bytes IS NULL) = 0, sum(r.model_bytes), NULL) AS bytes_,
        if(countIf({DRAM}) = 0, NULL, sumIf(r.dram_active * r.wall_us, {DRAM})) AS busy_,
        if(countIf({DRAM}) = 0, NULL, sumIf(r.wall_us, {DRAM})) AS seen_,
        min(r.started_at) AS first_at, max(r.started_at) AS last_at
    FROM ({SETTLED}) AS r
    GROUP BY policy_, replica, boot, pair_, arm_
    HAVING first_at >= fromUnixTimestamp64Nano({{kept_from:Int64}}, 'UTC')
) AS t
LEFT ANY JOIN (
    SELECT {BLOCK_KEY}, count() AS requests,
        sumMap(if({TIMED}, [{TPOT_BIN}], []), if({TIMED}, [toUInt64(1)], [])) AS tpots,
        sum(prompt_tokens) AS prompt_,
        if(countIf(isNull(cached_tokens)) = 0, sum(cached_tokens), NULL) AS cached_,
        countIf(isNotNull(output_tokens)) AS ended_, sum(output_tokens) AS output_,
        if(countIf(isNotNull(ttft_ms)) = 0, NULL, 1000 * sum(ttft_ms)) AS ttft_,
        countIf(isNotNull(ttft_ms)) AS firsts_
    FROM ({IN_BLOCKS})
    GROUP BY policy_, replica, boot, pair_, arm_
) AS q ON t.policy_ = q.policy_ AND t.replica = q.replica AND t.boot = q.boot
    AND t.pair_ = q.pair_ AND t.arm_ = q.arm_
LEFT ANY JOIN (
    SELECT {BLOCK_KEY}, sumMap(gap_bins, arrayMap(x -> toUInt64(x), gap_counts)) AS gaps
    FROM request_part FINAL
    WHERE {SPAN} AND {CHOSEN}
    GROUP BY policy_, replica, boot, pair_, arm_
) AS g ON t.policy_ = g.policy_ AND t.replica = g.replica AND t.boot = g.boot
    AND t.pair_ = g.pair_ AND t.arm_ = g.arm_
LEFT ANY JOIN {EPOCHS} AS b ON t.replica = b.replica AND t.boot = b.boot
SETTINGS join_use_nulls = 1"""

BLOCK_PART = f"""
INSERT INTO block_part (epoch, policy, replica, boot, pair, arm, class, context_bucket,
    output_bucket, k, request_rounds, proposed, accepted, emitted, tested, kept, censored,
    requests, kinds, kind_rounds, kind_emitted, kind_tested, kind_kept, computed_at, version)
SELECT epoch, policy_, replica, boot, pair_, arm_, class, context_bucket, output_bucket, k_,
    {POSITIONS},
    sum(if(e < a + 1 AND least(a, e) < k_, n, 0)) AS censored,
    uniqExactMerge(who) AS requests,
    (sumMap([kind], [n], [n * e],
        [if(k_ > 0 AND (e >= a + 1 OR (a > 0 AND e > 0)), n, 0)],
        [if(k_ > 0 AND a > 0 AND e > 0, n, 0)]) AS by_kind).1,
    by_kind.2, by_kind.3, by_kind.4, by_kind.5, now64(9),
    {{version:UInt64}}
FROM (
    SELECT ifNull(b.epoch, '') AS epoch, p.policy_ AS policy_, p.replica AS replica,
        p.boot AS boot, p.pair_ AS pair_, p.arm_ AS arm_, p.class AS class,
        {CONTEXT.sql("q.prompt_tokens")} AS context_bucket,
        if(isNull(q.prompt_tokens), 'unknown', {OUTPUT.sql("q.requested_output")}) AS output_bucket,
        {KIND} AS kind, k_, a, e, count() AS n, uniqExactState(p.request) AS who
    FROM (
        SELECT {BLOCK_KEY}, request, class, first_seq, k_, a, e
        FROM request_part FINAL {ROUNDS_OF_PARTS}
        WHERE {SPAN} AND {CHOSEN}
    ) AS p
    INNER JOIN (
        SELECT {BLOCK_KEY}, min(seq) AS settled_seq, min(started_at) AS first_at
        FROM ({SETTLED}) AS r
        GROUP BY policy_, replica, boot, pair_, arm_
        HAVING first_at >= fromUnixTimestamp64Nano({{kept_from:Int64}}, 'UTC')
    ) AS s ON p.policy_ = s.policy_ AND p.replica = s.replica AND p.boot = s.boot
        AND p.pair_ = s.pair_ AND p.arm_ = s.arm_
    LEFT ANY JOIN (
        SELECT replica, boot, request, any(prompt_tokens) AS prompt_tokens,
            any(requested_output) AS requested_output, any(adapter) AS adapter,
            any(guided) AS guided
        FROM request
        WHERE admitted_at >= fromUnixTimestamp64Nano({{from:Int64}}, 'UTC')
            AND admitted_at < fromUnixTimestamp64Nano({{to:Int64}}, 'UTC')
        GROUP BY replica, boot, request
    ) AS q ON p.replica = q.replica AND p.boot = q.boot AND p.request = q.request
    LEFT ANY JOIN {EPOCHS} AS b ON p.replica = b.replica AND p.boot = b.boot
    WHERE p.first_seq >= s.settled_seq
    GROUP BY epoch, policy_, replica, boot, pair_, arm_, class, context_bucket, output_bucket,
        kind, k_, a, e
)
GROUP BY epoch, policy_, replica, boot, pair_, arm_, class, context_bucket, output_bucket, k_
SETTINGS join_use_nulls = 1"""

BLOCK_CLASS = f"""
INSERT INTO block_class (epoch, policy, replica, boot, pair, arm, class, requests, tpot_bins,
    tpot_counts, computed_at, version)
SELECT ifNull(b.epoch, ''), q.policy_, q.replica, q.boot, q.pair_, q.arm_, q.class, q.requests,
    q.tpots.1, q.tpots.2, now64(9), {{version:UInt64}}
FROM (
    SELECT {BLOCK_KEY}, class, count() AS requests,
        sumMap(if({TIMED}, [{TPOT_BIN}], []), if({TIMED}, [toUInt64(1)], [])) AS tpots
    FROM ({IN_BLOCKS})
    GROUP BY policy_, replica, boot, pair_, arm_, class
    HAVING min(admitted_at) >= fromUnixTimestamp64Nano({{kept_from:Int64}}, 'UTC')
) AS q
LEFT ANY JOIN {EPOCHS} AS b ON q.replica = b.replica AND q.boot = b.boot
SETTINGS join_use_nulls = 1"""
