"""The report on a fleet as a whole: its mix of traffic, and what its tokens cost."""

import io
import json
import time

import pytest
from evaluate.block_rows import Kind, rows
from gate.test_gate_commands import put_rows, typed
from rich.console import Console

from specscope.report.collect import collect
from specscope.report.render import to_html, to_json, write
from specscope.report.terminal import show
from specscope.store.connection import Store

SHORT = Kind({0: 1.0, 2: 1.0, 4: 1.0}, {0: 10.0, 2: 10.0, 4: 9.0})
LONG = Kind({0: 1.0, 2: 1.0, 4: 1.0}, {0: 20.0, 2: 20.0, 4: 18.0})


@pytest.fixture
def store(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        yield opened


def put(store, often):
    """Pairs of 23 a class; k4 beside target-only in as many as `often` says, k2 in the others."""
    times, parts = rows({"short": SHORT, "long": LONG}, pairs=23, noise=0.001, drift=0.001)
    first = {"short": 0, "long": 23}
    compared = {}
    for row in times:
        (name,) = row.classes
        compared[row.pair] = "k4" if row.pair - first[name] <= often[name] else "k2"
    put_rows(
        store,
        [row for row in times if row.arm in ("k0", compared[row.pair])],
        [row for row in parts if row.arm in ("k0", compared[row.pair])],
    )


def seen(report):
    text = io.StringIO()
    show(report, Console(file=text, width=200, no_color=True))
    return text.getvalue()


def test_a_gain_in_every_segment_that_the_pooled_total_calls_a_loss_is_a_finding(store, tmp_path):
    put(store, {"short": 3, "long": 20})

    report = collect(store, title="x")

    (_, row) = json.loads(to_json(report))["fleet"]
    # Pooled: 15 ms over (3 * 9 + 20 * 18) / 23 ms. Each segment gains 10 / 9.
    assert row["arm"] == "k4"
    assert row["pooled"] == pytest.approx(15 / (387 / 23), rel=0.01)
    assert row["standardised"] == pytest.approx(10 / 9, rel=0.01)
    assert row["turned"] is True
    (finding,) = report.findings
    assert finding.startswith("Simpson's paradox: k4 pooled runs at 0.89x")
    line = "k4 over 2 kinds of traffic together: 1.11x at the fleet's mix, 0.89x pooled"
    write(report, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert line in text
    assert "k4 1.11x" in seen(report)
    assert "Simpson" in seen(report)
    assert "Simpson" in text
    assert "1.11x at the fleet&#39;s mix, 0.89x pooled" in to_html(report)


def test_arms_that_served_the_same_mix_are_not_turned_around(store):
    put(store, {"short": 12, "long": 12})

    report = collect(store, title="x")

    row = next(row for row in report.fleet if row.arm == "k4")
    assert row.pooled == pytest.approx(row.standardised, rel=0.01)
    assert report.findings == []


def boot(store, number, price):
    row = {"replica": "r0", "boot": f"b{number}", "epoch": "e1", "engine": "x", "target": "t"}
    row |= {"engine_version": "1", "host": "h", "started_at": time.time_ns() + number}
    row |= {"price_per_hour": price, "version": 1}
    store.insert("boot", typed(store, "boot", [row]))


def test_tokens_have_a_cost_where_the_boot_has_a_price(store, tmp_path):
    put(store, {"short": 23, "long": 0})
    free = collect(store, title="x")
    boot(store, 0, None)
    boot(store, 1, 2.5)

    report = collect(store, title="x")

    assert "a million output tokens cost" not in to_html(free)
    assert all(arm.cost_per_million is None for one in free.segments for arm in one.arms)
    short = next(one for one in report.segments if one.label == "short")
    base, fast = short.arms
    # 8 requests, a token each a round: of 10 ms at k = 0, of 9 ms at k = 4.
    assert base.cost_per_million == pytest.approx(2.5 / 3600 / 800 * 1e6, rel=0.01)
    assert base.cost_difference is None
    assert fast.cost_difference == pytest.approx(-0.1 * base.cost_per_million, rel=0.02)
    page = to_html(report)
    assert f'<td>k4</td><td class="n">{fast.cost_per_million:.3f}</td>' in page
    assert f"{fast.cost_difference:+.3f}" in page
    write(report, tmp_path)
    said = f"{fast.cost_per_million:.3f} | {fast.cost_difference:+.3f}"
    assert f"k4 | {said}" in (tmp_path / "report.md").read_text()
    assert "the price of every arm's tokens" in seen(report)
    assert "the price of every arm's tokens" not in seen(free)


def test_an_epoch_with_two_prices_has_none(store):
    put(store, {"short": 23, "long": 0})
    boot(store, 0, 2.0)
    boot(store, 1, 2.5)

    report = collect(store, title="x")

    assert all(arm.cost_per_million is None for one in report.segments for arm in one.arms)
