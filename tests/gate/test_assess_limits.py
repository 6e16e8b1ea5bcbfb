"""What a judgement rests on: which table, allowance, design and number of blocks count."""

import time
from dataclasses import asdict, replace

import pyarrow as pa
import pytest
from evaluate.block_rows import Kind, rows
from gate.test_gate_commands import typed

from specscope import queries
from specscope.assess import assess
from specscope.evaluate.experiment.blocks import BlockClass
from specscope.evaluate.verdict.choice import Rules
from specscope.evidence.read import Evidence
from specscope.evidence.records import is_large
from specscope.evidence.tables import under_newest_table
from specscope.policy.stored import StoredPolicy
from specscope.policy.table import MEASURED, Basis, Cell, GateTable
from specscope.store.connection import Store
from specscope.store.migrate import migrate

COST = {0: 1.0, 4: 1.6}
KINDS = {"sql": Kind({0: 1.0, 4: 3.6}, COST)}
POLICY = 7  # of `rows`


def evidence(pairs=20, kind="cohort", **more):
    blocks, parts = rows(KINDS, pairs=pairs)
    timed = {"tpot_counts": (8,)}  # open traffic is judged by the time per token of requests
    blocks = [replace(b, tpot_bins=(30 if b.k else 60,), **timed) for b in blocks]
    policies = (StoredPolicy(POLICY, 0, kind, {}, ""),) if kind else ()
    return Evidence(tuple(blocks), tuple(parts), policies=policies, **more)


def test_a_policy_says_for_every_screen_that_its_clients_wait():
    blocks, parts = rows(KINDS, pairs=20)
    body = {"closed_loop": True}
    said = Evidence(
        tuple(blocks), tuple(parts), policies=(StoredPolicy(POLICY, 0, "blocks", body, ""),)
    )

    (experiment,) = assess(said).experiments

    assert (experiment.kind, experiment.design) == ("closed_loop", "closed_loop")
    assert [one.design for one in assess(evidence(kind="blocks")).experiments] == ["switchback"]
    asked = assess(evidence(kind="blocks"), closed_loop=True)
    assert [one.design for one in asked.experiments] == ["closed_loop"]


def test_an_allowance_that_is_given_holds_over_that_of_a_cell():
    basis = Basis(MEASURED, tpot_ms=50.0)
    table = GateTable((Cell(4, "sql", basis=basis), Cell(4, "prose", basis=basis)), 0)

    assert assess(evidence(), table).allowances == {"sql": 50.0, "prose": 50.0}
    given = assess(evidence(), table, {"sql": 60.0})
    assert given.allowances == {"sql": 60.0, "prose": 50.0}


def test_an_allowance_of_a_class_that_nothing_served_is_noted():
    waited = BlockClass(
        epoch="e1", policy=7, replica="r0", boot="b0", pair=1, arm="current", class_="chat",
        requests=1,
    )  # fmt: skip
    found = assess(evidence(classes=(waited,)), None, {"sql": 60.0, "chat": 9.0, "sq1": 60.0})

    (note,) = found.notes
    assert "sq1" in note


@pytest.mark.parametrize(
    ("kind", "design", "decided"),
    [
        ("cohort", "cohort", True),
        (None, "cohort", True),
        ("of a later version", "cohort", True),
        ("blocks", "switchback", False),
    ],
)
def test_open_traffic_is_read_while_it_grows_and_what_is_unknown_is_a_cohort(kind, design, decided):
    """12 pairs have an interval, but none that holds at every look."""
    (one,) = assess(evidence(pairs=12, kind=kind)).experiments

    assert (one.kind == "blocks", one.design) == (kind == "blocks", design)
    (verdict,) = one.verdicts
    assert [speedup.low is not None for speedup in verdict.speedups] == [decided]


def test_rules_that_are_looked_at_often_hold_for_a_cohort_too():
    (verdict,) = assess(evidence(pairs=12), rules=Rules(looked_at_often=True)).verdicts

    assert verdict.speedups[0].low is None


@pytest.mark.parametrize("k", [0, 4])
def test_the_length_in_force_is_that_of_the_table(k):
    table = GateTable((Cell(k, "sql"),), 4 - k)

    (answer,) = assess(evidence(), table).segments

    assert (answer.current, answer.action) == (k, "keep" if k else "set_k")
    assert [one.current for one in assess(evidence()).segments] == [None]


def body(k):
    return {"kind": "cohort", "default_k": 0, "table": [{"class": "sql", "k": k}]}


def test_blocks_of_a_table_that_another_one_replaced_do_not_count():
    fixed, _ = rows(KINDS, pairs=1)
    (block,) = [b for b in fixed if b.k]
    old, new, other = (
        replace(block, arm="current", policy=p, epoch=e) for p, e in ((7, "e"), (8, "e"), (7, "f"))
    )
    cell = replace(old, arm="current+sql:k2")
    everything = [old, cell, new, other, *fixed]

    assert under_newest_table(everything, {7: body(2), 8: body(4)}) == [new, other, *fixed]
    assert under_newest_table(everything, {7: body(4), 8: body(4)}) == everything
    crossed = {7: body(2), 8: body(4) | {"crossover": {"left": ["r0"], "right": ["r1"]}}}
    assert under_newest_table(everything, crossed) == everything


def test_tables_that_nobody_can_read_are_not_taken_for_one():
    fixed, _ = rows(KINDS, pairs=1)
    (block,) = [b for b in fixed if b.k]
    old, new = (replace(block, arm="current", policy=p, epoch="e") for p in (7, 8))
    odd = {"table": [{"k": -4}]}

    assert under_newest_table([old, new], {7: odd, 8: odd}) == [new]
    assert under_newest_table([old, new], {}) == [new]
    assert under_newest_table([old], {}) == [old]


def test_over_20_000_blocks_are_added_up_over_replicas(tmp_path):
    (block, *_), _ = rows(KINDS, pairs=1)
    times = {k: float(v) if k.endswith("_us") and v is not None else v
             for k, v in asdict(block).items()}  # fmt: skip
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        one = typed(store, "block_time", [{**times, "version": time.time_ns()}])
        many = pa.concat_tables([one] * 20_001).combine_chunks()
        place = many.schema.get_field_index("pair")
        pairs = pa.array(range(1, 20_002), many.schema.field(place).type)
        store.insert("block_time", many.set_column(place, many.schema.field(place), pairs))

        assert is_large(store, queries.EVERYTHING)
        assert not is_large(store, "pair <= 20000")
        assert not is_large(store, "pair = 0")
