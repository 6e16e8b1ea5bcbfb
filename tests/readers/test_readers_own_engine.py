"""The bundled engine's own metrics and benchmark, as it writes them."""

import json
from types import SimpleNamespace

import pytest

from specscope.analyze.collect import analyze

EngineMetrics = pytest.importorskip("specscope.engine.server.metrics").EngineMetrics
api = pytest.importorskip("specscope.engine.api")
bench = pytest.importorskip("specscope.engine.bench.bench")


def scrape(rounds):
    """A scrape after `rounds` rounds of 10 ms: one sequence keeps 2 of 3, one proposes nothing."""
    metrics = EngineMetrics()
    for _ in range(rounds):
        metrics.round_ended(
            api.RoundReport(
                started_at=0, wall_us=10_000.0, draft_us=2_000.0, verify_us=6_000.0,
                sample_us=500.0, idle_us=1_500.0, catchup_us=0.0, prefill_us=0.0,
                timing_source="host", waiting=0, prefill_tokens=0, padded_tokens=0, preempted=0,
                requests=["a", "b"], contexts=[8, 8], k=[3, 0], accepted=[2, 0], emitted=[3, 1],
                ends=["none", "none"],
            )
        )  # fmt: skip
    return metrics.render(SimpleNamespace(rows=[1, 2], queue=[1]))


def analysed(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    return analyze([str(tmp_path)]).as_json()


def test_the_difference_of_two_scrapes_counts_drafts_positions_and_times(tmp_path):
    found = analysed(tmp_path, a_prom=scrape(100), b_prom=scrape(300))
    totals, time = found["totals"], found["time"]

    assert (totals["drafts"], totals["proposed"], totals["accepted"]) == (200, 600, 400)
    assert totals["accepted_at"] == [200, 200, 0]
    assert totals["mean_length"] == pytest.approx(3.0)
    assert totals["coverage"] == pytest.approx(0.75)
    assert (totals["running"], totals["waiting"]) == (2, 1)
    assert (time["rounds"], time["round_ms"]) == (200, pytest.approx(10))
    assert [time[f"{part}_ms"] for part in ("draft", "verify", "sample", "idle")] == pytest.approx(
        [2, 6, 0.5, 1.5]
    )
    assert found["verdicts"][0]["action"] == "collect_baseline"


def test_an_engine_that_has_decoded_nothing_gives_no_window(tmp_path):
    found = analysed(tmp_path, a_prom=scrape(0))

    assert found["windows"] == []
    assert found["verdicts"][0]["action"] == "no_data"


def cell(drafter, k, tok_s, tokens):
    times = dict.fromkeys(("draft_us", "verify_us", "sample_us", "idle_us", "catchup_us"), 1000.0)
    speedup = None if drafter == "none" else tok_s / 100
    return {
        "label": "sql", "drafter": drafter, "batch": 8, "context": 64, "k": k, "rounds": 50,
        "tokens_per_s": tok_s, "speedup": speedup, "tokens_per_round": tokens,
        "achieved_gb_s": 3.0, "of_copy": 0.3, **times,
    }  # fmt: skip


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize(
    ("tok_s", "tokens", "action", "k"),
    [
        (150, 2.4, "keep", 4),
        (80, 2.4, "disable", 0),
        (150, 1.0, "inconclusive", None),  # no round is cheaper than a target-only step
    ],
)
def test_cells_of_the_benchmark_are_compared_with_the_drafter_none(
    form, tok_s, tokens, action, k, tmp_path
):
    cells = [cell("none", 0, 100.0, 1.0), cell("eagle", 4, float(tok_s), tokens)]
    result = {"schema": "specscope.engine.bench.bench/1", "copy_gb_s": 10.0, "cells": cells}
    text = bench.table(result) if form == "table" else json.dumps(result, indent=2)
    found = analysed(tmp_path, b_txt=text)

    assert found["comparisons"][0]["speedup"] == pytest.approx(tok_s / 100)
    assert found["verdicts"][0]["class"] == {"batch": 8, "context": 64, "label": "sql"}
    assert (found["verdicts"][0]["action"], found["verdicts"][0]["k"]) == (action, k)
    assert found["verdicts"][0]["confidence"] == "low"
