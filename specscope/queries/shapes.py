"""Rounds of experiments by their shape. Part of `queries`, by the same rules, called through it."""

from __future__ import annotations

from specscope.queries.delivery import EVERYTHING


def round_shapes(where: str = EVERYTHING) -> str:
    """Rounds of blocks after their burn-in, added up by batch, longest draft and query tokens. [1]

    Table `round`, time `started_at`. The times of drafts and verify passes are unknown if one
    round of the shape does not have them; rounds without a wall time are left out.
    """
    return f"""
        SELECT assumeNotNull(policy) AS policy_, replica, boot, assumeNotNull(pair) AS pair_,
            assumeNotNull(arm) AS arm_, batch, k, n_q, count() AS rounds,
            sum(r.n_kv) AS n_kv, sum(r.padded_tokens) AS padded_tokens,
            sum(r.prefill_tokens) AS prefill_tokens, sum(r.emitted) AS emitted,
            sum(r.wall_us) AS wall_us,
            if(countIf(isNull(r.draft_us) AND r.k > 0) = 0, ifNull(sum(r.draft_us), 0), NULL)
                AS draft_us,
            if(countIf(isNull(r.verify_us)) = 0, sum(r.verify_us), NULL) AS verify_us
        FROM (
            SELECT * FROM round FINAL WHERE isNotNull(policy) AND isNotNull(pair)
                AND isNotNull(arm) AND isNotNull(wall_us) AND batch > 0 AND ({where})
        ) AS r
        LEFT ANY JOIN (SELECT policy AS policy_of, burn_in_ms FROM policy FINAL) AS p
            ON assumeNotNull(r.policy) = p.policy_of
        WHERE ifNull(block_age_ms, 0) >= ifNull(burn_in_ms, 0)
        GROUP BY policy_, replica, boot, pair_, arm_, batch, k, n_q
        ORDER BY policy_, replica, boot, pair_, arm_, batch, k, n_q"""
