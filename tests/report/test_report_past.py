"""What earlier weeks promised, what the pairs since then say, and the trend between."""

import dataclasses
import re
import time
from datetime import UTC, datetime

import numpy as np
import pytest
from evaluate.block_rows import Kind, rows
from gate.test_gate_commands import put_rows

from specscope.policy.events import event
from specscope.report import model
from specscope.report.collect import collect
from specscope.report.past import outcome
from specscope.report.phrases.actions import kept_said, last_week
from specscope.report.render import to_html, write
from specscope.service.assessor import Assessor
from specscope.store.connection import Store

DAY = 86_400 * 10**9
COST = {0: 1.0, 4: 1.6}
FRESH = Kind({0: 1.0, 4: 3.2}, COST)  # k = 4 runs at 2.0 of target-only
STALE = Kind({0: 1.0, 4: 2.0}, COST)  # and later at 1.25
WEEKS = ({"sql": FRESH, "prose": FRESH}, {"sql": FRESH, "prose": FRESH},
         {"sql": FRESH, "prose": STALE})  # fmt: skip


def a_pair_each(week, kinds, now):
    """Pairs of a week, an hour apart, the last one a day before its end."""
    times, parts = rows(kinds, seed=week, noise=0.01)
    begin = now - (len(WEEKS) - week) * 7 * DAY
    change = {"policy": 10 + week}
    times = [
        dataclasses.replace(t, **change, first_at=begin + t.pair * DAY // 24,
                            last_at=begin + t.pair * DAY // 24 + 10**9)
        for t in times
    ]  # fmt: skip
    return times, [dataclasses.replace(p, **change) for p in parts]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A store of three weeks, judged at the end of each; and the report on the last."""
    now = time.time_ns()
    with Store.open(f"chdb://{tmp_path_factory.mktemp('past')}/store") as store:
        for week, kinds in enumerate(WEEKS):
            put_rows(store, *a_pair_each(week, kinds, now))
            Assessor(store).tick(now - (len(WEEKS) - 1 - week) * 7 * DAY - DAY)
        events = [
            event(now - 9 * DAY, "deploy", f"b{n}", replica=f"r{n}", note="drafter v2")
            for n in range(1000)
        ]
        store.add("event", [*events, event(now - DAY, "policy", "7", note="k = 4")])
        yield collect(store, title="x", since=now - 7 * DAY)


def test_a_promise_is_held_against_the_pairs_that_began_after_it(told):
    promises = {row.segment.split(",")[0]: row for row in last_week(told)}

    assert {name: row.outcome for name, row in promises.items()} == {
        "sql": "held", "prose": "less",
    }  # fmt: skip
    assert promises["sql"].promised.value == pytest.approx(2.0, rel=0.02)
    assert promises["sql"].measured.value == pytest.approx(2.0, rel=0.02)
    assert promises["prose"].measured.value == pytest.approx(1.25, rel=0.02)
    assert {row.pairs for row in promises.values()} == {20}


def test_all_promises_are_counted(told):
    # Pairs of earlier weeks are not read: a cohort's evidence begins with the period.
    assert kept_said(told).startswith("Of 4 verdicts in 2 weeks")
    assert "1 held, 0 gave more, 1 gave less" in kept_said(told)


def test_the_trend_has_a_point_a_day_and_marks_what_changed(told, tmp_path):
    trend = {row.segment.split(",")[0]: row.points for row in told.trend}

    assert [round(one.speedup, 1) for one in trend["prose"]] == [2.0, 2.0, 1.2]
    assert [one.action for one in trend["sql"]] == ["set_k"] * 3
    page = to_html(told)
    assert "Speedup of each kind of traffic over time" in page
    deploys, _ = told.events
    assert (deploys.replicas, deploys.replica) == (1000, "r0, r1, r10 and 997 more")
    assert page.count("drafter v2") == 1
    write(told, tmp_path)
    assert "gave less than promised" in (tmp_path / "report.md").read_text()


def test_the_picture_s_points_lie_where_time_and_speedup_say(told):
    (picture,) = re.findall(r'<div class="chart"[^>]*>(<svg.*?Speedup of each kind of traffic over '
                            r"time.*?</svg>)", to_html(told), re.DOTALL)  # fmt: skip
    dots = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)" style="fill: var\(--blue\)', picture)
    drawn = iter(np.array(dots, dtype=float))

    for row in told.trend:
        x, y = np.array([next(drawn) for _ in row.points]).T
        days = [one.at.timestamp() / 86_400 for one in row.points]
        speedups = [one.speedup for one in row.points]
        for place, values, sign in ((x, days, 1), (y, speedups, -1)):  # y grows downwards
            slope, start = np.polyfit(values, place, 1)
            assert np.sign(slope) == sign
            assert np.allclose(slope * np.array(values) + start, place, atol=0.01)
    assert next(drawn, None) is None


def test_without_a_past_the_page_says_when_there_will_be_one(told):
    first = dataclasses.replace(told, promises=[], trend=[], events=[])

    page = to_html(first)

    assert "No verdict is a week old yet" in page
    assert "<h2>Trend</h2>" not in page


@pytest.mark.parametrize(
    ("promised", "measured", "came"),
    [
        ((1.5, 1.4, 1.6), (1.5, 1.3, 1.7), "held"),
        ((1.5, 1.4, 1.6), (1.2, 1.1, 1.3), "less"),
        ((1.5, 1.4, 1.6), (0.8, 0.7, 0.9), "less"),
        ((1.5, 1.4, 1.6), (1.9, 1.8, 2.0), "more"),
        ((1.5, 1.4, 1.6), (1.4, 0.9, 2.2), "open"),
        ((1.5, 1.4, 1.6), (1.4, None, None), "open"),
        ((0.8, 0.7, 0.9), (0.8, 0.7, 0.95), "held"),
        ((0.8, 0.7, 0.9), (1.0, 0.8, 1.2), "open"),
        ((0.8, 0.7, 0.9), None, "not_measured"),
    ],
)
def test_outcomes(promised, measured, came):
    again = None if measured is None else model.Interval(*measured)

    assert outcome(model.Interval(*promised), again) == came


def test_times_of_the_past_are_utc(told):
    assert all(row.at.tzinfo is UTC for row in told.promises)
    assert all(row.until <= datetime.now(UTC) for row in told.promises)
