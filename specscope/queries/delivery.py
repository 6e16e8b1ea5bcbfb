"""Whether the numbers can be trusted: what arrived, what was lost, and who sent it.

Part of `queries`, by the same rules, and called through it.
"""

from __future__ import annotations

EVERYTHING = "1"

# Batches whose rows are counted themselves: stored lately, and far from their age to go.
YOUNG = """(rounds > 0 AND stored_at >= now64(9, 'UTC') - INTERVAL 1 HOUR
        AND ifNull(first_at, toDateTime64(0, 9, 'UTC')) >= now64(9, 'UTC') - INTERVAL 2 DAY)"""


def losses(where: str = EVERYTHING) -> str:
    """Records that exist nowhere any more, by replica, kind and reason. [records]

    Table `loss`, time `lost_at`. `count` is unknown if any of them is, such as a tail.
    """
    return f"""
        SELECT replica, table, reason, if(countIf(isNull(count)) = 0, sum(l.count), NULL) AS count,
            max(lost_at) AS last_at
        FROM (SELECT * FROM loss FINAL WHERE {where}) AS l
        GROUP BY replica, table, reason ORDER BY replica, table, reason"""


def guardrails(where: str = EVERYTHING) -> str:
    """Each time that a guardrail put k = 0 in force, by boot. [1]

    Table `loss`, time `lost_at`, which comes out in ns since 1970. `detail` is JSON: the policy,
    until when (ns since 1970), and the reason.
    """
    return f"""
        SELECT replica, boot, toUnixTimestamp64Nano(lost_at) AS lost_at, detail
        FROM (SELECT * FROM loss FINAL WHERE {where}) WHERE reason = 'guardrail'
        ORDER BY replica, boot, lost_at"""


def losses_by_minute(where: str = EVERYTHING) -> str:
    """Records lost, by minute and reason. [records]

    Table `loss`, time `lost_at`.
    """
    return f"""
        SELECT toDateTime64(toStartOfMinute(lost_at), 3, 'UTC') AS minute, reason,
            sum(ifNull(count, 1)) AS records
        FROM loss FINAL WHERE {where}
        GROUP BY minute, reason ORDER BY minute, reason"""


def stored_rows(where: str = EVERYTHING) -> str:
    """Rows that arrived, by minute and kind. [rows]

    Table `batch`, time `stored_at`.
    """
    return f"""
        SELECT toDateTime64(toStartOfMinute(stored_at), 3, 'UTC') AS minute, sum(rounds) AS rounds,
            sum(request_parts) AS request_parts, sum(requests) AS requests, count() AS batches
        FROM batch FINAL WHERE {where}
        GROUP BY minute ORDER BY minute"""


def silence(where: str = EVERYTHING) -> str:
    """Time since the last batch of each replica arrived. [s]

    Table `batch`, time `stored_at`.
    """
    return f"""
        SELECT replica, dateDiff('millisecond', max(stored_at), now64(3, 'UTC')) / 1000 AS silence
        FROM batch FINAL WHERE {where}
        GROUP BY replica ORDER BY replica"""


def endings(where: str = EVERYTHING) -> str:
    """How each boot ended, and time since its last batch arrived. [s]

    Table `batch`, time `stored_at`. `ended`: its sidecar saw the end and shipped all before it;
    `tail_unknown`: its sidecar saw that it ended without a word; `open`: nobody has said that it
    ended, so it runs, or went with its sidecar, and then its tail is unknown too.
    """
    return f"""
        SELECT replica, boot,
            multiIf(isNotNull(ended_at), 'ended', tails > 0, 'tail_unknown', 'open') AS ending,
            dateDiff('millisecond', last_at, now64(3, 'UTC')) / 1000 AS silence
        FROM (
            SELECT replica, boot, max(stored_at) AS last_at
            FROM batch FINAL WHERE {where} GROUP BY replica, boot
        ) AS stored
        LEFT ANY JOIN (SELECT replica, boot, ended_at FROM boot FINAL) AS said
            USING (replica, boot)
        LEFT ANY JOIN (
            SELECT replica, boot, count() AS tails FROM loss FINAL
            WHERE reason = 'tail_unknown' GROUP BY replica, boot
        ) AS cut USING (replica, boot)
        ORDER BY replica, boot"""


def reconciliation(where: str = EVERYTHING) -> str:
    """Records that the hook numbered, and where they went, by boot. [records]

    Tables `batch` and, by replica and boot, `round` and `loss`; time `stored_at`. `recorded`
    counts from the first record to the last that a batch accounts for. `rounds` of batches of the
    last hour are counted in the rows themselves; older ones by the ledger, less what a start of
    the service found missing. `lost`, within the recorded, is only what the ring's own numbers
    cover (a request part is made of rounds, and has none). Nothing is unaccounted for when
    recorded = rounds + requests + lost.
    """
    ledger = f"SELECT *, {YOUNG} AS young FROM batch FINAL WHERE {where}"
    return f"""
        SELECT replica, boot, recorded, said + ifNull(held, 0) - ifNull(found_missing, 0) AS rounds,
            requests, ifNull(lost, 0) AS lost, ifNull(unknown, 0) AS unknown,
            toInt64(recorded) - rounds - requests - lost AS unaccounted
        FROM (
            SELECT replica, boot, max(next_seq) - min(first_seq) AS recorded,
                toInt64(sumIf(b.rounds, NOT young)) AS said, sum(b.requests) AS requests
            FROM ({ledger}) AS b GROUP BY replica, boot
        ) AS stored
        LEFT ANY JOIN (
            SELECT replica, boot, toInt64(count()) AS held
            FROM (
                SELECT r.replica AS replica, r.boot AS boot, r.seq AS seq, b.next_seq AS next_seq
                FROM (
                    SELECT replica, boot, seq FROM round FINAL
                    WHERE started_at >= (SELECT min(first_at) FROM ({ledger}) WHERE young)
                        AND started_at <= (SELECT max(last_at) FROM ({ledger}) WHERE young)
                ) AS r
                -- Without batches that hold no record: they begin where the next one does.
                ASOF INNER JOIN (SELECT * FROM ({ledger}) WHERE young) AS b
                    ON r.replica = b.replica AND r.boot = b.boot AND r.seq >= b.first_seq
                WHERE r.seq < b.next_seq
            )
            GROUP BY replica, boot
        ) AS counted USING (replica, boot)
        LEFT ANY JOIN (
            SELECT replica, boot, sum(ifNull(l.count, 0)) AS lost,
                countIf(isNull(l.count)) AS unknown,
                toInt64(sumIf(l.count, reason = 'store' AND l.table = 'round'
                    AND l.first_seq < old_end)) AS found_missing
            FROM (SELECT * FROM loss FINAL WHERE table IN ('ring', 'round', 'request')) AS l
            INNER JOIN (
                SELECT replica, boot, min(first_seq) AS begins, max(next_seq) AS ends,
                    maxIf(next_seq, NOT young) AS old_end
                FROM ({ledger}) GROUP BY replica, boot
            ) AS numbered USING (replica, boot)
            WHERE isNull(l.count) OR ifNull(l.first_seq, begins) BETWEEN begins AND ends - 1
            GROUP BY replica, boot
        ) AS gone USING (replica, boot)
        ORDER BY replica, boot"""


def stored_rounds(where: str = EVERYTHING) -> str:
    """Rounds that the store still holds, counted once each, by boot. [rounds]

    Table `round`, time `started_at`. Against `rounds` of reconciliation, while none aged out.
    """
    return f"""
        SELECT replica, boot, count() AS rounds, sum(batch) AS request_rounds,
            sum(emitted) AS emitted
        FROM round FINAL WHERE {where}
        GROUP BY replica, boot ORDER BY replica, boot"""


def boots(where: str = EVERYTHING) -> str:
    """Every start of a serving process, as it defined itself. [1]

    Table `boot`, time `started_at`.
    """
    return f"SELECT * FROM boot FINAL WHERE {where} ORDER BY started_at, replica, boot"


def starts(where: str = EVERYTHING) -> str:
    """What each start of a replica's process ran, oldest first. [1]

    Table `boot`, time `started_at`, which comes out in ns since 1970.
    """
    return f"""
        SELECT replica, boot, toUnixTimestamp64Nano(b.started_at) AS started_at, epoch, engine,
            engine_version, hook_version, target, draft, method, k_max, configuration_digest
        FROM (SELECT * FROM boot FINAL WHERE {where}) AS b
        ORDER BY started_at, replica, boot"""


LAST_POLICY = (1 << 31) - 1
"""Highest number of a policy: one per second since 1970 would still be below it."""


def events(where: str = EVERYTHING) -> str:
    """Changes of the gate, deploys, guardrails and experiments, oldest first. [1]

    Table `event`, time `at`, which comes out in ns since 1970.
    """
    return f"""
        SELECT toUnixTimestamp64Nano(e.at) AS at, kind, subject, replica, epoch, policy, author,
            note, detail
        FROM (SELECT * FROM event FINAL WHERE {where}) AS e
        ORDER BY at, kind, subject, replica"""


def policies(where: str = EVERYTHING) -> str:
    """Every policy, in the order of their numbers; the last is the one in force. [1]

    Table `policy`, time `created_at`, which comes out in ns since 1970. `table` is the whole
    policy as JSON, as sidecars get it. A number beyond LAST_POLICY was put there by nobody who
    counts: left in, no policy could follow it.
    """
    return f"""
        SELECT policy, toUnixTimestamp64Nano(created_at) AS created_at, kind, table, note
        FROM (SELECT * FROM policy FINAL WHERE ({where}) AND policy <= {LAST_POLICY})
        ORDER BY policy"""
