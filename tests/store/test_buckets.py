from __future__ import annotations

import pytest

from specscope.store.buckets import CONTEXT, LOAD, OUTPUT


@pytest.mark.parametrize("buckets", [CONTEXT, OUTPUT, LOAD])
def test_python_and_sql_put_every_edge_into_the_same_bucket(store, buckets):
    edges = {0, 1, 10**7} | {edge + step for edge in buckets.edges for step in (-1, 0, 1)}

    got = store.rows(
        f"SELECT x, {buckets.sql('x')} AS bucket FROM (SELECT arrayJoin({{x:Array(UInt32)}}) AS x) "
        "ORDER BY x",
        {"x": sorted(edges)},
    )

    assert [(row["x"], row["bucket"]) for row in got] == [
        (edge, buckets.name(edge)) for edge in sorted(edges)
    ]


def test_what_is_not_known_is_its_own_bucket(store):
    sql = f"SELECT {CONTEXT.sql('CAST(NULL AS Nullable(UInt32))')} AS bucket"

    assert store.rows(sql) == [{"bucket": "unknown"}]
    assert CONTEXT.name(None) == "unknown"


def test_a_bucket_says_what_it_holds():
    assert CONTEXT.name(1024) == "0-1k"
    assert CONTEXT.name(1025) == "1-4k"
    assert OUTPUT.name(64) == "17-64"
    assert OUTPUT.name(1025) == "1k+"
    assert LOAD.name(1) == "1"
    assert LOAD.name(257) == "257+"
