"""The table and the policy that carries it mean the same to the hook and to us."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specscope.errors import UsageError
from specscope.gate.show import diff_lines, table_lines
from specscope.policy.table import Cell, GateTable, State, range_of, read_table
from specscope.store.buckets import CONTEXT, OUTPUT
from specscope_hook.gate import Gate

limits = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 50), st.one_of(st.none(), st.integers(51, 90))),
)
cells = st.builds(
    Cell,
    k=st.integers(0, 8),
    class_=st.one_of(st.none(), st.sampled_from(["sql", "prose"])),
    context=limits,
    output=limits,
    batch=limits,
    queue=limits,
)
states = st.builds(
    State,
    class_=st.sampled_from(["sql", "prose", "other"]),
    context=st.integers(0, 100),
    output=st.integers(0, 100),
    batch=st.integers(1, 100),
    queue=st.integers(0, 100),
)


@given(st.lists(cells, max_size=5), st.integers(0, 8), states)
def test_the_hook_reads_the_table_as_we_do(rows, default, state):
    table = GateTable(tuple(rows), default)
    text = json.dumps({"policy": 1, "kind": "table", **table.as_json()})

    hook = Gate.from_policy(text)

    assert hook.k(state.class_, state.context, state.output, state.batch, state.queue) == table.k(
        state
    )
    assert read_table(json.loads(text)) == table


@given(cells, cells, states)
def test_a_covered_cell_never_matches_alone(wide, narrow, state):
    if wide.covers(narrow) and narrow.matches(state):
        assert wide.matches(state)


def test_cells_put_first_win_and_remove_what_they_cover():
    old = GateTable((Cell(4, "sql", batch=(1, 9)), Cell(2, "prose")), 1)

    new = old.with_first((Cell(0, "sql"),))

    assert new.cells == (Cell(0, "sql"), Cell(2, "prose"))
    assert new.k(State("sql", batch=3)) == 0
    assert new.k(State("other")) == 1
    assert new.k_max == 2


@pytest.mark.parametrize("buckets", [CONTEXT, OUTPUT])
@given(value=st.integers(0, 100_000))
def test_ranges_hold_what_their_bucket_holds(buckets, value):
    for name in buckets.names:
        low, high = range_of(buckets, name)
        inside = low <= value and (high is None or value < high)
        assert inside == (buckets.name(value) == name)


def test_buckets_without_bounds_have_no_range():
    assert range_of(OUTPUT, "unknown") is None
    assert range_of(OUTPUT, None) is None


@pytest.mark.parametrize(
    "policy",
    [
        {"table": [{"class": "sql"}]},
        {"table": [{"class": "sql", "k": 999}]},
        {"table": [{"class": "sql", "k": 1, "batch": [5, 5]}]},
        {"table": 7},
        {"default_k": -1},
    ],
)
def test_a_broken_table_is_refused_with_a_reason(policy):
    with pytest.raises(UsageError, match=r"\w"):
        read_table(policy)


def test_a_table_reads_as_sentences():
    table = GateTable((Cell(4, "sql", batch=(0, 9)), Cell(0, None, context=(4097, None))), 2)

    assert table_lines(table) == [
        "sql, batch 0 to 8: k = 4",
        "every class, context from 4097: k = 0",
        "otherwise: k = 2",
    ]


def test_a_diff_names_what_goes_and_comes():
    old, new = GateTable((Cell(4, "sql"),), 0), GateTable((Cell(2, "sql"),), 0)

    assert diff_lines(old, new) == ["- sql: k = 4", "+ sql: k = 2"]
    assert diff_lines(old, old) == []
