"""A recommendation from blocks made by hand: assessed as the product does, then recommended."""

from specscope.assess import assess
from specscope.evidence.read import Evidence
from specscope.gate import recommend as product


def of_epoch(blocks, parts):
    """Evidence of cohorts, without a store."""
    return Evidence(tuple(blocks), tuple(parts))


def recommend(evidence, table, changes=(), *, now, decision=None, **kwargs):
    """Judge under a table and rules, then recommend."""
    return product.recommend(assess(evidence, table, rules=decision), changes, now=now, **kwargs)
