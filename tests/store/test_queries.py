from __future__ import annotations

import inspect
import math
import re
import time

import pytest
from replay.answers import a_result
from store.test_roll import put
from store.traffic import Traffic, table
from store.truth import grouped, positions, sums

from specscope import queries
from specscope.policy.events import event
from specscope.replay.stored import keep
from specscope.service.assessor import Assessor
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll

MINUTE = 60 * 10**9  # ns
FUNCTIONS = {
    name: function
    for name, function in inspect.getmembers(queries, inspect.isfunction)
    if not name.startswith("_")
}

NOBODY = {
    "policies": "policy = 99",
    "tokens_by_class": "class = 'nobody'",
    "verdicts": "epoch = 'nobody'",
    "verdict_history": "epoch = 'nobody'",
    "replays": "epoch = 'nobody'",
}
"""A condition that nothing meets, where the table has no replica."""


@pytest.fixture(scope="module")
def traffic():
    # Within one minute, whatever the time is: the quantities below are asked for by the minute.
    return Traffic(pairs=4, seed=3, started_at=(time.time_ns() // MINUTE - 10) * MINUTE)


@pytest.fixture(scope="module")
def filled(tmp_path_factory, traffic):
    path = tmp_path_factory.mktemp("queries") / "store"
    with Store.open(f"chdb://{path}") as store:
        migrate(store)
        put(store, traffic)
        lost = {
            "replica": "r0", "boot": "b0", "lost_at": traffic.started_at, "detail": "",
        }  # fmt: skip
        rows = [
            lost | {"table": "ring", "reason": "ring_full", "first_seq": 5, "count": 3},
            lost | {"table": "ring", "reason": "ring_full", "first_seq": 50, "count": 4},
            lost | {"table": "ring", "reason": "tail_unknown", "first_seq": None, "count": None},
            lost | {"table": "block", "reason": "guardrail", "first_seq": None, "count": 1},
        ]
        store.insert("loss", table("loss", rows))
        sample = {
            "replica": "r0", "sampled_at": traffic.started_at, "window_ms": 100.0, "uuid": "G",
            "gpu_instance": None, "unit": "1", "reason": "",
        }  # fmt: skip
        policy = {
            "policy": 7, "created_at": traffic.started_at, "kind": "cohort", "seed": 1, "arms": [],
            "block_ms": None, "burn_in_ms": None, "first_pair": 1, "table": "{}", "note": "",
        }  # fmt: skip
        store.insert("policy", table("policy", [policy]))
        deploy = event(traffic.started_at, "deploy", "b0", replica="r0")
        store.add("event", [deploy])
        rows = [
            sample | {"field": "dram_active", "value": 0.5},
            sample | {"field": "clock_event_reasons", "value": 4.0},
            sample | {"field": "power", "value": None, "reason": "no permission"},
            sample | {"field": "engine_generation_tokens", "value": 40.0, "uuid": "an engine"},
        ]
        store.insert("device", table("device", rows))
        roll(store, everything=True)
        Assessor(store).tick()
        keep(store, a_result(1.3))
        yield store


def all_of(traffic):
    return [s for r in traffic.rounds for s in r.sequences]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_quantity_says_its_meaning_its_unit_and_runs(filled, name):
    function = FUNCTIONS[name]
    first, *rest = inspect.getdoc(function).split("\n\n")

    rows = filled.rows(function())

    assert re.search(r"\. \[[^\]]+\]$", first)
    assert rest, "which table and time a condition may use"
    assert rows, "nothing to see in a store that has everything"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_come_in_an_order_that_the_statement_fixes(filled, name):
    statement = FUNCTIONS[name]()

    ordered = re.search(
        r"ORDER BY [\w, ]+?( LIMIT \d+)?(\s+SETTINGS max_threads = 1)?\s*$", statement
    )

    assert ordered or len(filled.rows(statement)) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_condition_that_nothing_meets_gives_nothing_or_unknown(filled, name):
    rows = filled.rows(FUNCTIONS[name](NOBODY.get(name, "replica = 'nobody'")))

    assert all(not value for row in rows for value in row.values())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_condition_may_use_the_time_that_the_docstring_names(filled, name):
    found = re.search(r"times? `(\w+)`", inspect.getdoc(FUNCTIONS[name]))
    moment = "toDateTime64('2020-01-01 00:00:00', 9, 'UTC')"

    late = filled.rows(FUNCTIONS[name](f"{found[1]} > {moment} AND {found[1]} < now64() + 99"))
    early = filled.rows(FUNCTIONS[name](f"{found[1]} < {moment}"))

    assert late
    assert not early


def test_tokens_per_round_is_emitted_over_request_rounds(filled, traffic):
    got = filled.rows(queries.tokens_per_round())

    for class_ in {s.class_ for s in all_of(traffic)}:
        mine = [s for s in all_of(traffic) if s.class_ == class_]
        (value,) = [row["tokens_per_round"] for row in got if row["class"] == class_] or [None]
        assert value == pytest.approx(sum(s.emitted for s in mine) / len(mine))


def test_acceptance_by_position_is_a_product_of_chances_over_what_was_tested(filled, traffic):
    got = {
        (row["class"], row["position"]): row
        for row in filled.rows(queries.acceptance_by_position())
    }

    for class_, sequences in grouped(traffic, lambda _, s: s.class_).items():
        tested, kept, _ = positions([s for s in sequences if s.k], 4)
        survival = 1.0
        for position in range(1, 5):
            if not tested[position - 1]:
                assert (class_, position) not in got
                continue
            survival *= kept[position - 1] / tested[position - 1]
            row = got[class_, position]
            assert (row["tested"], row["kept"]) == (tested[position - 1], kept[position - 1])
            assert row["survival"] == pytest.approx(survival)


def test_break_even_is_the_ratio_of_the_times_of_a_round(filled, traffic):
    (row,) = filled.rows(queries.break_even())

    def mean(values):
        values = list(values)
        return sum(values) / len(values)

    speculative = [r for r in traffic.rounds if max(s.k for s in r.sequences)]
    target_only = [r for r in traffic.rounds if not max(s.k for s in r.sequences)]
    assert row["needed"] == pytest.approx(
        mean(r.wall_us for r in speculative) / mean(r.wall_us for r in target_only)
    )
    flat = [s for r in speculative for s in r.sequences]
    assert row["tokens_per_round"] == pytest.approx(sum(s.emitted for s in flat) / len(flat))


def test_the_parts_of_a_round_add_up_to_it(filled, traffic):
    (row,) = filled.rows(queries.round_time())

    wall = sum(r.wall_us for r in traffic.rounds) / len(traffic.rounds) / 1000
    parts = [row[name] for name in (*queries.PARTS, "other") if row[name] is not None]
    assert sum(parts) == pytest.approx(wall)
    assert row["idle"] is None


def test_throughput_is_tokens_over_busy_time(filled, traffic):
    (row,) = filled.rows(queries.throughput())

    emitted = sum(s.emitted for s in all_of(traffic))
    wall = sum(r.wall_us for r in traffic.rounds) / 1e6
    assert row["tokens_per_second"] == pytest.approx(emitted / wall)


def test_latencies_are_exact_quantiles(filled, traffic):
    got = {row["class"]: row for row in filled.rows(queries.request_latency())}

    for class_, row in got.items():
        mine = sorted(r["e2e_ms"] for r in traffic.requests_ended if r["class"] == class_)
        assert row["requests"] == len(mine)
        assert row["e2e_p95"] in [pytest.approx(value) for value in mine]


def test_accepted_lengths_count_every_round(filled, traffic):
    rows = filled.rows(queries.accepted_lengths())

    assert sum(row["rounds"] for row in rows) == len(all_of(traffic))
    assert sum(row["rounds"] * row["accepted_length"] for row in rows) == sum(
        s.accepted for s in all_of(traffic)
    )


def test_losses_add_up_and_an_unknown_one_stays_unknown(filled):
    got = {row["reason"]: row["count"] for row in filled.rows(queries.losses())}

    assert got == {"ring_full": 7, "tail_unknown": None, "guardrail": 1}


def test_reconciliation_says_what_is_unaccounted_for(filled, traffic):
    (row,) = filled.rows(queries.reconciliation())

    # Nothing is lost: the losses of this made store come on top.
    assert row["recorded"] == traffic.messages()[-1].next_seq
    assert row["lost"] == 7
    assert row["unknown"] == 1
    assert row["unaccounted"] == -7


def test_blocks_come_as_the_evaluator_reads_them(filled, traffic):
    from dataclasses import fields

    from specscope.evaluate.experiment.blocks import BlockPart, BlockTime

    block, part = filled.rows(queries.blocks())[0], filled.rows(queries.block_parts())[0]

    assert set(block) == {f.name for f in fields(BlockTime)} - {"void", "merged"}
    assert set(part) == {f.name.rstrip("_") for f in fields(BlockPart)}
    assert isinstance(block["first_at"], int)
    assert block["first_at"] >= traffic.started_at


def test_a_device_that_reports_nothing_says_why(filled):
    got = {row["field"]: row for row in filled.rows(queries.device())}

    assert got["dram_active"]["value"] == 0.5
    assert got["power"]["value"] is None
    assert got["power"]["reason"] == "no permission"


def test_no_quantity_is_not_a_number_where_it_is_unknown(filled):
    for function in FUNCTIONS.values():
        for row in filled.rows(function()):
            assert not any(isinstance(v, float) and math.isnan(v) for v in row.values())


def test_sums_of_a_block_s_parts_are_the_block_s(filled):
    blocks = filled.rows(queries.blocks())
    parts = filled.rows(queries.block_parts())

    for block in blocks:
        mine = [p for p in parts if (p["pair"], p["arm"]) == (block["pair"], block["arm"])]
        for name in sums([]):
            assert sum(part[name] for part in mine) == block[name]
