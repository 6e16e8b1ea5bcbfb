"""Empty, thin, broken and one-class weeks, and a fleet that is added up: what each says first."""

import dataclasses
import time

import pytest
from evaluate.block_rows import Kind, rows
from gate.test_gate_commands import put_rows
from golden_traffic import Engine

from specscope.evidence import records
from specscope.report.collect import collect
from specscope.report.phrases.evidence import alike
from specscope.report.render import to_html
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_agent.loss import rows_table

HOUR = 3600 * 10**9
COST = {0: 1.0, 4: 1.6}
WIN = Kind({0: 1.0, 4: 3.6}, COST)
LOSE = Kind({0: 1.0, 4: 1.2}, COST)


@pytest.fixture
def store(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        migrate(opened)
        yield opened


def week(store, kinds, pairs=24, change=lambda row: row):
    times, parts = rows(kinds, pairs=pairs)
    put_rows(store, [change(row) for row in times], parts, time.time_ns() - HOUR)
    return collect(store, title="x", since=time.time_ns() - 24 * HOUR)


def test_an_empty_week_says_how_to_begin_and_draws_nothing(store):
    report = collect(store, title="x")

    page = to_html(report)

    assert "specscope gate calibrate" in page
    assert "<svg" not in page
    assert "Verdicts</h2>" not in page


def test_a_thin_week_promises_nothing(store):
    report = week(store, {"sql": WIN, "prose": LOSE}, pairs=3)

    page = to_html(report)

    assert report.headline.endswith("Confidence is too low to change a gate.")
    assert "no change of the gate has enough evidence" in page
    assert 'class="verdict unsure"' in page
    assert 'class="verdict set_k"' not in page


def test_a_week_with_one_sure_verdict_and_one_thin_says_how_many(store):
    put = rows({"prose": LOSE}, pairs=3)
    thin = [dataclasses.replace(row, pair=row.pair + 500) for row in put[0]]
    parts = [dataclasses.replace(row, pair=row.pair + 500) for row in put[1]]
    put_rows(store, thin, parts, time.time_ns() - HOUR)

    report = week(store, {"sql": WIN})

    assert report.headline.endswith("For 1 of them, confidence is too low to change a gate.")


def test_a_broken_week_says_what_is_wrong_and_in_words(store):
    def wrong(row):
        return dataclasses.replace(row, verify_us=0.4 * row.verify_us) if row.k else row

    report = week(store, {"sql": WIN}, change=wrong)

    page = to_html(report)
    assert "compare the clocks" in page
    assert "INCONSISTENT" not in page
    assert "no grade, low" in page
    assert not report.changes


def test_a_week_of_one_class_needs_no_grid_and_no_switch(store):
    report = week(store, {"sql": WIN})

    page = to_html(report)
    assert "Speedup over context and load" not in page
    assert "One draft length for all" not in page
    assert 'class="verdict set_k"' in page


def test_a_fleet_that_is_added_up_names_its_replicas_as_one(store, monkeypatch):
    monkeypatch.setattr(records, "MOST_BLOCKS", 10)
    begin = time.time_ns() - 30 * 24 * HOUR
    boots = [Engine(f"r{n}", "e1", 7).boot_row(begin) for n in range(40)]
    store.insert("boot", rows_table("boot", boots))

    report = week(store, {"sql": WIN})

    assert len(report.replicas) == 40
    ((names, _),) = alike(report)
    assert names == "r0, r1, r10 and 37 more"
    assert names in to_html(report)
