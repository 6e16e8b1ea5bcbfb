"""SQL for `roll`: raw rows with FINAL into one row per key.

Each statement has bound parameters, named in its comment, and writes rows of version {version}.
Positions follow the evaluator: a position is tested if all before it were accepted. If a text ended
inside a round (emitted < accepted + 1), positions after the last emitted token were never at risk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from specscope.store.buckets import CONTEXT
from specscope.store.rollups import ROLLUPS
from specscope_hook.columns import columns, stored_name


def insert(table: str, values: Mapping[str, str], source: str) -> str:
    """INSERT of one row per group, with an expression for each column of the record.

    values: expression by stored column name; the caller gives `version`. source: FROM and the
    clauses after it.

    Raises ValueError if an expression is missing or has no column.
    """
    values = {**values, "version": "{version:UInt64}"}
    names = [stored_name(column.name) for column in columns(ROLLUPS[table])]
    if wrong := set(names) ^ values.keys():
        raise ValueError(f"{table}: columns and expressions differ in {sorted(wrong)}")
    listed = ", ".join(f"`{name}`" for name in names)
    return f"INSERT INTO {table} ({listed})\nSELECT {', '.join(values[n] for n in names)}\n{source}"


def left(
    table: str, cell: Sequence[str], whole: Sequence[str], counted: str, where: str, **more: str
) -> str:
    """INSERT that empties the cells that rounds have left for another one.

    What names a cell may come later than its rounds, such as the epoch of their boot. They are then
    counted in the cell that they were in, and in the one that they belong to.

    cell: its key; whole: columns of the key whose cells are always computed together, so that one
    of a version below the highest was left; counted: a column that is 0 in an empty cell alone;
    where: condition on the wholes that were just computed; more: expressions of other columns
    """
    key = ", ".join(cell)
    return f"""INSERT INTO {table} ({", ".join((key, "version", *more))})
SELECT {", ".join((key, "newest", *more.values()))} FROM (
    SELECT {key}, version, {counted}, max(version) OVER (PARTITION BY {", ".join(whole)}) AS newest
    FROM {table} FINAL WHERE {where}
)
WHERE version < newest AND {counted} > 0"""


def named(values: Mapping[str, str]) -> str:
    """The expressions of a SELECT, each named with a trailing `_`, because ClickHouse would
    substitute the bare name inside other expressions."""
    return ",\n        ".join(f"{value} AS {name}_" for name, value in values.items())


def of(row: str, names: Iterable[str]) -> dict[str, str]:
    """Columns of a subquery that `named` wrote."""
    return {name: f"{row}.{name}_" for name in names}


def whole_sum(column: str, ran: str = "") -> str:
    """Sum over rounds; NULL if a round that ran this part does not know its value, because a
    partial sum would look complete. ran: condition on such rounds; without any, the sum is 0."""
    if not ran:
        return f"if(countIf(r.{column} IS NULL) = 0, sum(r.{column}), NULL)"
    unknown = f"countIf(r.{column} IS NULL AND {ran})"
    return f"if({unknown} = 0, ifNull(sum(r.{column}), 0), NULL)"


TIMES = {
    "wall_us": whole_sum("wall_us"),
    "draft_us": whole_sum("draft_us", "r.k > 0"),
    "verify_us": whole_sum("verify_us"),
    "sample_us": whole_sum("sample_us"),
    "idle_us": whole_sum("idle_us"),
    "catchup_us": "sum(r.catchup_us)",
    "prefill_us": whole_sum("prefill_us", "r.prefill_tokens > 0"),
}


def log_bin(milliseconds: str) -> str:
    """Bin of a time in a log-histogram, within 1 % of all of its values."""
    return f"toInt16(ceil(log(greatest({milliseconds}, 1e-6)) / log(1.01 / 0.99)))"


# A round of a request each: draft `k_`, verified `v`, accepted `a`, emitted `e`, and the context
# when it began `c`.
ROUNDS_OF_PARTS = """
    ARRAY JOIN k AS k_, accepted AS a, if(empty(verified), k, verified) AS v,
        if(empty(emitted), arrayMap(x -> toUInt8(x + 1), accepted), emitted) AS e,
        arrayMap((after, own) -> context + after - own,
            arrayCumSum(if(empty(emitted), arrayMap(x -> x + 1, accepted), emitted)),
            if(empty(emitted), arrayMap(x -> toUInt8(x + 1), accepted), emitted)) AS c"""

# Over groups of equal k, v, a and e, of `n` rounds.
POSITIONS = {
    "request_rounds": "sum(n)",
    "proposed": "sum(n * k_)",
    "accepted": "sum(n * a)",
    "emitted": "sum(n * e)",
    "tested": """sumForEach(arrayMap(
        j -> if(j <= least(v, if(e < a + 1, least(a, e), a + 1)), n, 0), range(1, k_ + 1)))""",
    "kept": """sumForEach(arrayMap(
        j -> if(j <= if(e < a + 1, least(a, e), a), n, 0), range(1, k_ + 1)))""",
}

# {from}, {to}: ns. Whole minutes or hours are rolled at once, for all replicas.
SPAN = """started_at >= fromUnixTimestamp64Nano({from:Int64}, 'UTC')
        AND started_at < fromUnixTimestamp64Nano({to:Int64}, 'UTC')"""

HOURS = """hour >= fromUnixTimestamp64Nano({from:Int64}, 'UTC')
        AND hour < fromUnixTimestamp64Nano({to:Int64}, 'UTC')"""

MINUTE_KEY = ("minute", "replica", "class")

MINUTE = insert(
    "minute",
    {
        **{name: name for name in MINUTE_KEY},
        "k": "k_",
        **POSITIONS,
        "accepted_length": "sumForEach(arrayMap(i -> if(i = a, n, 0), range(k_ + 1)))",
        "context": "sum(contexts)",
    },
    f"""FROM (
    SELECT toStartOfMinute(started_at) AS minute, replica, class, k_, v, a, e,
        count() AS n, sum(c) AS contexts
    FROM request_part FINAL {ROUNDS_OF_PARTS}
    WHERE {SPAN}
    GROUP BY minute, replica, class, k_, v, a, e
)
GROUP BY minute, replica, class, k_""",
)

WALL_BIN = log_bin("ifNull(wall_us, 1) / 1000")

MINUTE_TIME = insert(
    "minute_time",
    {
        **{name: f"r.{name}" for name in ("minute", "replica", "arm", "k")},
        "rounds": "count()",
        **{
            name: f"sum(r.{name})"
            for name in (
                "batch",
                "waiting",
                "n_q",
                "n_kv",
                "proposed",
                "accepted",
                "emitted",
                "padded_tokens",
            )
        },
        **TIMES,
        "model_bytes": whole_sum("model_bytes"),
        "wall_bins": """(sumMap(if(isNull(r.wall_us), [], [bin]),
        if(isNull(r.wall_us), [], [toUInt64(1)])) AS walls).1""",
        "wall_counts": "walls.2",
    },
    f"""FROM (
    SELECT *, toStartOfMinute(started_at) AS minute, {WALL_BIN} AS bin
    FROM round FINAL WHERE {SPAN}
) AS r
GROUP BY r.minute, r.replica, r.arm, r.k""",
)

# What the rollups take from each boot.
BOOTS = """(
    SELECT replica, boot, any(epoch) AS epoch, ifNull(any(tenant), '') AS tenant FROM boot
    GROUP BY replica, boot
)"""

HOUR_KEY = ("hour", "tenant", "epoch", "class", "context_bucket", "arm")

HOUR = insert(
    "hour",
    {
        **{name: name for name in HOUR_KEY},
        "k": "k_",
        **POSITIONS,
        "requests": "uniqExactMerge(who)",
    },
    f"""FROM (
    SELECT toStartOfHour(p.started_at) AS hour, ifNull(b.tenant, '') AS tenant,
        ifNull(b.epoch, '') AS epoch, p.class AS class,
        {CONTEXT.sql("q.prompt_tokens")} AS context_bucket, p.arm AS arm, k_, v, a, e,
        count() AS n, uniqExactState(p.replica, p.boot, p.request) AS who
    FROM (
        SELECT replica, boot, request, class, arm, started_at, k_, v, a, e
        FROM request_part FINAL {ROUNDS_OF_PARTS}
        WHERE {SPAN}
    ) AS p
    LEFT ANY JOIN (
        SELECT replica, boot, request, any(prompt_tokens) AS prompt_tokens FROM request
        WHERE admitted_at >= fromUnixTimestamp64Nano({{from:Int64}}, 'UTC') - INTERVAL 1 DAY
            AND admitted_at < fromUnixTimestamp64Nano({{to:Int64}}, 'UTC')
        GROUP BY replica, boot, request
    ) AS q ON p.replica = q.replica AND p.boot = q.boot AND p.request = q.request
    LEFT ANY JOIN {BOOTS} AS b ON p.replica = b.replica AND p.boot = b.boot
    GROUP BY {", ".join(HOUR_KEY)}, k_, v, a, e
)
GROUP BY {", ".join(HOUR_KEY)}, k_
SETTINGS join_use_nulls = 1""",
)

HOUR_LEFT = left("hour", (*HOUR_KEY, "k"), ("hour",), "request_rounds", HOURS)
