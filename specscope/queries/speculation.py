"""What speculation yields. Part of `queries`, by the same rules, called through it."""

from __future__ import annotations

from specscope.queries.delivery import EVERYTHING


def tokens_by_class(where: str = EVERYTHING) -> str:
    """Output tokens of each class and context, and the hours that they span. [tokens]

    Table `hour`, time `hour`. `hours`: from the first hour of any class to the last.
    """
    return f"""
        SELECT class, context_bucket, sum(emitted) AS emitted,
            (SELECT dateDiff('hour', min(hour), max(hour)) + 1 FROM hour WHERE {where}) AS hours
        FROM hour FINAL WHERE {where}
        GROUP BY class, context_bucket ORDER BY class, context_bucket"""


def tokens_per_round(where: str = EVERYTHING) -> str:
    """Tokens that came out for a sequence in a round, by minute and class. [tokens]

    Table `minute`, time `minute`. Target-only rounds count too: they yield 1.
    """
    return f"""
        SELECT minute, class, sum(emitted) / sum(request_rounds) AS tokens_per_round
        FROM minute FINAL WHERE {where}
        GROUP BY minute, class ORDER BY minute, class"""


def acceptance_by_position(where: str = EVERYTHING) -> str:
    """Chance that a round keeps its proposals up to each position, by class. [share]

    Table `minute`, time `minute`. `hazard` is the chance at the position given that it was
    tested, `survival` the product up to it; `tested` is the evidence. Positions behind the end
    of a text were not tested.
    """
    return f"""
        SELECT class, position, tested, kept, hazard, survival
        FROM (
            SELECT class, sumForEach(tested) AS n, sumForEach(kept) AS d,
                arrayMap((kept_, tested_) -> kept_ / nullIf(tested_, 0), d, n) AS hazards
            FROM minute FINAL WHERE k > 0 AND ({where})
            GROUP BY class
        )
        ARRAY JOIN arrayEnumerate(n) AS position, n AS tested, d AS kept, hazards AS hazard,
            arrayMap(i -> arrayProduct(arrayMap(x -> ifNull(x, nan), arraySlice(hazards, 1, i))),
                arrayEnumerate(n)) AS survival
        WHERE tested > 0
        ORDER BY class, position"""


def accepted_lengths(where: str = EVERYTHING) -> str:
    """Rounds by the proposals that they kept, by class and draft length. [rounds]

    Table `minute`, time `minute`.
    """
    return f"""
        SELECT class, k, accepted_length, rounds
        FROM (
            SELECT class, k, sumForEach(accepted_length) AS counts
            FROM minute FINAL WHERE {where} GROUP BY class, k
        )
        ARRAY JOIN counts AS rounds, arrayMap(i -> i - 1, arrayEnumerate(counts)) AS accepted_length
        ORDER BY class, k, accepted_length"""


def acceptance_rate(where: str = EVERYTHING) -> str:
    """Share of proposed tokens that were kept, by minute and class. [share]

    Table `minute`, time `minute`. It never decides: see tokens_per_round and break_even.
    """
    return f"""
        SELECT minute, class, sum(accepted) / nullIf(sum(proposed), 0) AS acceptance_rate
        FROM minute FINAL WHERE {where}
        GROUP BY minute, class ORDER BY minute, class"""
