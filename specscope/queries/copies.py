"""Requests whose output is known twice. Part of `queries`, by the same rules, called through it."""

from __future__ import annotations

from specscope.queries.delivery import EVERYTHING


def output_count(where: str = EVERYTHING) -> str:
    """Rows of requests whose output may be compared, ended or not. [rows]

    Table `request`, times `admitted_at` and `ended_at`. No row where there is none.
    """
    return f"""
        SELECT count() AS requests FROM request WHERE isNotNull(content) AND ({where})
        HAVING requests > 0"""


def outputs(where: str = EVERYTHING, every: int = 1) -> str:
    """Requests of experiments whose output is known twice, by class and arm. [requests]

    Table `request`, times `admitted_at` and `ended_at`. Requests that share a `content` must have
    the same output. Of the arm `k0`, its first two outputs of a content are compared; of another
    arm, its first with the first of `k0`. Requests that lived through two blocks are left out.
    every: one content in so many is looked at, with all its requests.
    """
    return f"""
        WITH firsts AS (
            SELECT epoch, class, content, arm, arraySlice(
                arrayMap(x -> x.3, arraySort(groupArray((admitted_at, request, digest)))), 1, 2
            ) AS digests
            FROM (
                SELECT * FROM request
                WHERE isNotNull(ended_at) AND isNotNull(content) AND isNotNull(digest)
                    AND isNotNull(arm) AND pair = last_pair AND reason != 'abort'
                    AND content % {every:d} = 0 AND ({where})
                LIMIT 1 BY replica, boot, request
            ) AS r
            LEFT ANY JOIN (SELECT replica, boot, any(epoch) AS epoch FROM boot
                GROUP BY replica, boot) AS b ON r.replica = b.replica AND r.boot = b.boot
            GROUP BY epoch, class, content, arm
        )
        SELECT * FROM (
            SELECT epoch, class, assumeNotNull(arm) AS arm,
                countIf(length(digests) > 1) AS compared,
                countIf(length(digests) > 1 AND digests[1] != digests[2]) AS differing
            FROM firsts WHERE arm = 'k0' GROUP BY epoch, class, arm
            UNION ALL
            SELECT epoch, class, assumeNotNull(arm) AS arm, count() AS compared,
                countIf(digests[1] != own[1]) AS differing
            FROM (SELECT epoch, class, content, arm, digests AS own FROM firsts WHERE arm != 'k0')
                AS f
            INNER JOIN (SELECT epoch, class, content, digests FROM firsts WHERE arm = 'k0') AS k
                USING (epoch, class, content)
            GROUP BY epoch, class, arm
        )
        ORDER BY epoch, class, arm"""
