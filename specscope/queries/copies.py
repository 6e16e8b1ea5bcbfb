"""Requests whose output is known twice. Part of `queries`, by the same rules, called through it."""

from __future__ import annotations

from collections.abc import Mapping

from specscope.queries.delivery import EVERYTHING
from specscope.store.literals import quoted


def output_count(where: str = EVERYTHING) -> str:
    """Rows of requests whose output may be compared, ended or not. [rows]

    Table `request`, times `admitted_at` and `ended_at`. No row where there is none.
    """
    return f"""
        SELECT count() AS requests FROM request WHERE isNotNull(content) AND ({where})
        HAVING requests > 0"""


def outputs(
    where: str = EVERYTHING,
    every: int = 1,
    ran: Mapping[tuple[str, str], str] | None = None,
    baseline: str = "k0",
) -> str:
    """Requests of experiments whose output is known twice, by class and arm. [requests]

    Table `request`, times `admitted_at` and `ended_at`. Requests that share a `content` must have
    the same output. Of the baseline, its first two outputs of a content are compared; of another
    arm, its first with the first of the baseline. Requests that lived through two blocks are left
    out. every: one content in so many is looked at, with all its requests.

    ran: what each (replica, boot) ran, which then is the arm, whatever the epoch and the block: in
    a crossover by router. Requests of other boots are left out.
    """
    of = quoted(baseline)
    return f"""
        WITH firsts AS (
            SELECT epoch, class, content, arm, arraySlice(
                arrayMap(x -> x.3, arraySort(groupArray((admitted_at, request, digest)))), 1, 2
            ) AS digests
            FROM ({_by_arm(where, every) if ran is None else _by_boot(where, every, ran)})
            GROUP BY epoch, class, content, arm
        )
        SELECT * FROM (
            SELECT epoch, class, assumeNotNull(arm) AS arm,
                countIf(length(digests) > 1) AS compared,
                countIf(length(digests) > 1 AND digests[1] != digests[2]) AS differing
            FROM firsts WHERE arm = {of} GROUP BY epoch, class, arm
            UNION ALL
            SELECT epoch, class, assumeNotNull(arm) AS arm, count() AS compared,
                countIf(digests[1] != own[1]) AS differing
            FROM (SELECT epoch, class, content, arm, digests AS own FROM firsts WHERE arm != {of})
                AS f
            INNER JOIN (SELECT epoch, class, content, digests FROM firsts WHERE arm = {of}) AS k
                USING (epoch, class, content)
            GROUP BY epoch, class, arm
        )
        ORDER BY epoch, class, arm"""


# A request that was aborted was computed for as long as nobody had said so: its tokens differ.
_KNOWN = """isNotNull(ended_at) AND isNotNull(content) AND isNotNull(digest)
        AND reason NOT IN ('abort', 'stop_or_abort')"""


def _by_arm(where: str, every: int) -> str:
    return f"""
                SELECT epoch, class, content, arm, admitted_at, request, digest
                FROM (
                    SELECT * FROM request
                    WHERE {_KNOWN} AND isNotNull(arm) AND pair = last_pair
                        AND content % {every:d} = 0 AND ({where})
                    LIMIT 1 BY replica, boot, request
                ) AS r
                LEFT ANY JOIN (SELECT replica, boot, any(epoch) AS epoch FROM boot
                    GROUP BY replica, boot) AS b ON r.replica = b.replica AND r.boot = b.boot"""


def _by_boot(where: str, every: int, ran: Mapping[tuple[str, str], str]) -> str:
    named = sorted(ran.items())
    boots = ", ".join(f"({quoted(replica)}, {quoted(boot)})" for (replica, boot), _ in named)
    arms = ", ".join(quoted(arm) for _, arm in named)
    return f"""
                SELECT '' AS epoch, class, content, CAST([{arms}], 'Array(String)')[
                    indexOf(CAST([{boots}], 'Array(Tuple(String, String))'),
                        (toString(replica), toString(boot)))] AS arm, admitted_at, request, digest
                FROM (
                    SELECT * FROM request
                    WHERE {_KNOWN} AND content % {every:d} = 0 AND ({where})
                    LIMIT 1 BY replica, boot, request
                )
                WHERE arm != ''"""
