"""The report as a page, as text, as JSON and in a terminal; the page in a real browser."""

import io
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest
from reports import CAUSE, a_loss, a_report, a_segment, an_arm
from rich.console import Console
from waiting import PATIENCE_S

from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.fleet import fleet_verdict, segment_names
from specscope.evaluate.verdict.verdict import Action, Confidence
from specscope.report.model import (
    CauseOddsRow,
    ChangeRow,
    FlagRow,
    HowRow,
    Interval,
    ReasonRow,
    Worth,
)
from specscope.report.phrases.segments import deciding_arm, metrics_said, verdict, why
from specscope.report.render import to_html, to_json, write
from specscope.report.terminal import show
from specscope.report.views import headline


def test_the_page_carries_everything_inside_itself():
    page = to_html(a_report())

    assert page.count("<svg") == 3
    assert not re.search(r'(src|href)="(?!#)', page.replace('xlink:href="#', ""))


def test_a_name_from_the_traffic_is_text_on_the_page_not_markup():
    page = to_html(a_report(segments=[a_segment(name="<script>alert(1)</script>", label="x")]))

    assert "<script>" not in page


def test_json_holds_the_report_field_by_field():
    values = json.loads(to_json(a_report()))

    assert values["schema"] == "specscope.report/1"
    assert values["segments"][1]["action"] == "disable"
    assert values["accounting"] == {"recorded": 1003, "stored": 1000, "lost": 3}
    assert values["created_at"] == "2026-11-29T12:00:00+00:00"


def test_a_report_without_evidence_still_reads(tmp_path):
    empty = a_report(segments=[], stories=[], losses=[], replicas=[], since=None, until=None)

    page = write(empty, tmp_path)

    assert page.stat().st_size > 1000
    assert "nan" not in page.read_text().lower().split("</style>")[1].split("<svg")[0]


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (("keep", "inconclusive"), "pays for some of this traffic, the rest is undecided. 2 kinds"),
        (("keep", "disable"), "pays for some of this traffic and not for all. 2 kinds"),
        (("disable", "route"), "no kind of traffic measured here gains. 2 kinds"),
    ],
)
def test_the_headline_takes_undecided_traffic_for_neither_gain_nor_loss(actions, said):
    verdicts = [
        SimpleNamespace(
            action=Action(action),
            epoch="e",
            segment=Segment(action),
            pairs_needed=20,
            pairs=20,
            speedups=(1,),
            cause_odds=(),
            confidence=Confidence.HIGH,
        )
        for action in actions
    ]

    text = headline(verdicts, fleet_verdict(verdicts))

    assert said in text
    assert ("undecided" in text) == ("inconclusive" in actions)


def test_the_terminal_shows_each_segment_with_its_verdict_in_80_columns():
    text = io.StringIO()

    show(a_report(), Console(file=text, width=80, no_color=True))

    assert "sql, light" in text.getvalue()
    assert "keep, k = 4" in text.getvalue()
    assert "1003 written = 1000 stored + 3 lost" in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 80


def test_the_terminal_says_in_a_line_a_segment_why_its_verdict_is_what_it_is():
    text = io.StringIO()
    lost = a_segment("prose", "disable", None, **a_loss())
    silent = a_segment("json", reasons=[])

    show(a_report(segments=[a_segment(), lost, silent]), Console(file=text, width=200))

    lines = [line for line in text.getvalue().splitlines() if line.startswith("- ")]
    assert lines[0] == "- sql, light: k2 cannot be told from k4"
    assert lines[1] == f"- prose, light: all lose; {CAUSE}"
    assert not any(line.startswith("- json, light") for line in lines)


def test_numbers_that_do_not_add_up_are_said():
    text = io.StringIO()
    accounting = type(a_report().accounting)(recorded=10, stored=8, lost=1)

    show(a_report(accounting=accounting), Console(file=text, width=80))

    assert "do not add up" in " ".join(text.getvalue().split())


def test_the_terminal_names_each_loss_and_an_unknown_number_of_records():
    text = io.StringIO()
    (loss,) = a_report().losses[:1]
    tail = replace(loss, replica="r7", reason="tail_unknown", count=None, meaning="cut off")

    show(a_report(losses=[tail]), Console(file=text, width=80))

    assert "- lost: an unknown number of" in text.getvalue()
    assert "r7: cut off (tail_unknown)" in " ".join(text.getvalue().split())


def test_the_deciding_arm_is_the_one_kept_or_the_best_of_those_that_lose():
    arms = [an_arm(0), an_arm(2, 0.9), an_arm(4, 0.8)]

    kept = a_segment("x", "set_k", 4, arms=arms)
    lost = a_segment("x", "disable", None, arms=arms)

    assert deciding_arm(kept).arm == "k4"
    assert deciding_arm(lost).arm == "k2"
    assert deciding_arm(a_segment(arms=[])) is None
    assert verdict(lost) == "disable"


def test_the_table_says_what_the_deciding_arm_yields_and_lacks_and_no_more():
    segment = a_segment(
        reasons=[
            ReasonRow("break_even", "k2", {}, "k2 yields"),
            ReasonRow("break_even", "k4", {}, "k4 yields"),
            *(
                ReasonRow("thin", arm, {"have": have, "least": 30, "unit": unit}, "lacks")
                for arm in ("k2", "k4")
                for have, unit in ((3, "requests"), (9, "rounds"))
            ),
            ReasonRow("swap_next", None, {}, "swap"),
        ],
        flags=[FlagRow("NOT_SWAPPED", "NOT_SWAPPED: hardware")],
    )

    assert why(segment) == (
        "NOT_SWAPPED: hardware; k4 yields; swap; "
        "low confidence: k4 has 3 of 30 requests, 9 of 30 rounds"
    )


def test_a_speedup_at_equal_traffic_says_what_it_was_as_it_came():
    held = "requests of the block"
    arm = an_arm(4, speedup=1.7, held_equal=held, unadjusted=1.66)
    segment = a_segment(reasons=[], arms=[an_arm(0), arm])

    assert why(segment) == "corrected for requests of the block; uncorrected 1.66"
    assert "corrected for requests of the block; uncorrected 1.66" in to_html(
        replace(a_report(), segments=[segment])
    )


def test_every_view_says_what_a_speedup_is_of(tmp_path):
    queued = a_segment(metric="tokens per second")
    timed = a_segment("prose", metric="time per token")
    both = replace(a_report(), segments=[queued, timed])

    assert metrics_said(a_report()) == []
    assert metrics_said(replace(both, segments=[timed, timed])) == ["Speedup: time per token"]
    text = io.StringIO()
    show(both, Console(file=text, width=200))
    write(both, tmp_path)
    pages = [(tmp_path / f"report.{kind}").read_text() for kind in ("html", "md")]
    for view in (text.getvalue(), *pages):
        assert "Speedup of sql, light: tokens per second" in view
        assert "Speedup of prose, light: time per token" in view


CHROMIUM = shutil.which("chromium")


@pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="no chromium on this machine"
)
def test_a_browser_draws_the_page_without_an_error(tmp_path):
    page = write(a_report(), tmp_path)

    run = subprocess.run(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
            "--disable-dev-shm-usage",  # rings of other tests are there, and containers have little
            *("--disable-background-networking", "--disable-component-update", "--disable-quic"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    assert "Does speculative decoding pay?" in run.stdout
    assert run.stdout.count("<svg") == 3
    assert "CONSOLE" not in run.stderr


def test_a_loss_names_its_cause_on_every_view(tmp_path):
    text = io.StringIO()
    report = a_report()

    write(report, tmp_path)
    show(report, Console(file=text, width=80, no_color=True))

    page, plain = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    said = " ".join(text.getvalue().split())
    assert "<b>draft cost</b>" in page
    assert "1.40" in page
    assert "prose, light, k4 at 0.80, draft cost (97%): draft cost 1.40 (draft takes 40%" in plain
    assert said.count(CAUSE) == 1
    assert "a cheaper draft would make prose, light pay" in said
    assert "Not ruled out: draft placement, overhead bound" in page
    assert "GPU type of the engine" in page
    (loss,) = json.loads(to_json(report))["segments"][1]["causes"]
    assert loss["primary"] == "draft_cost"
    assert loss["cause_odds"][0] == {
        "cause": "draft_cost",
        "odds": 0.97,
        "speedup": 1.4,
        "needs": [],
    }
    assert loss["causes"][0]["flips"] is True


def test_rivals_stand_together_with_their_odds_and_with_the_one_that_is_not_ruled_out(tmp_path):
    loss = a_loss()
    odds = [
        CauseOddsRow("verify_cost", 0.56, 1.1),
        CauseOddsRow("low_acceptance", 0.44, 1.0),
        CauseOddsRow("draft_cost", None, 1.2, ["boot.gpu_type"]),
    ]
    causes = [replace(loss["causes"][0], primary=None, cause_odds=odds)]
    tied = loss | {"primary": None, "cause_odds": odds, "causes": causes}

    write(a_report(segments=[a_segment("prose", "disable", None, **tied)]), tmp_path)

    page, plain = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    assert "verify cost (56%) or low acceptance (44%) or draft cost (not ruled out)" in plain
    assert all(f">{one}<" in page for one in ("56%", "44%", "not ruled out"))
    assert "<b>" not in page.split("Why it loses")[1].split("Every repair")[0]


def test_delay_and_acceptance_are_views_of_each_arm_with_the_load_that_they_depend_on(tmp_path):
    arms = [
        an_arm(0, queue=3.5, queue_delay_ms=120.0, acceptance=None),
        an_arm(4, 1.5, queue=0.5, queue_delay_ms=40.0, acceptance=0.61),
    ]

    write(a_report(segments=[a_segment(arms=arms)]), tmp_path)

    page, plain = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    rows = json.loads((tmp_path / "report.json").read_text())["segments"][0]["arms"]
    assert [(row["queue_delay_ms"], row["acceptance"]) for row in rows] == [
        (120.0, None),
        (40.0, 0.61),
    ]
    for text in (page, plain):
        section = text.split("What the arm itself changes")[1]
        assert "never used to group the traffic of a speedup" in " ".join(section.split())
        for value in ("61 %", "120 ms", "40 ms", "3.5", "0.5"):
            assert value in section


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "No outputs were compared"),
        ("equal", "Outputs are equal: 0 of 100"),
        ("as_twins", "no more than target-only differs from itself"),
        ("undecided", "send some requests twice under k0"),
        ("differs", "Speculation changes outputs"),
    ],
)
def test_the_page_says_whether_the_outputs_are_equal(state, said):
    report = a_report(outputs_state=state)
    text = io.StringIO()

    show(report, Console(file=text, width=80))

    assert said in to_html(report)
    assert said in " ".join(text.getvalue().split())


def test_segments_have_the_shortest_names_that_tell_them_apart():
    keys = [
        ("e1", Segment("sql", "0-1k", "17-64", "1")),
        ("e1", Segment("prose", "0-1k", "17-64", "1")),
        ("e1", Segment("prose", "1-4k", "17-64", "1")),
        ("e1", Segment("logs", "0-1k", None, "5-16")),
        ("e2", Segment("logs", "0-1k", None, "5-16")),
        ("e2", Segment()),
    ]

    names = segment_names(keys, {"1": "light"})

    assert list(names.values()) == [
        "sql, light",
        "prose 0-1k 17-64, light",
        "prose 1-4k 17-64, light",
        "logs 0-1k, load 5-16, epoch e1",
        "logs 0-1k, load 5-16, epoch e2",
        "mixed classes",
    ]


def test_what_is_needed_and_what_would_change_use_the_report_s_names():
    def verdict(label, action, **changes):
        plain = {"epoch": "e", "pairs_needed": 40, "pairs": 10, "speedups": (1,), "flags": ()}
        segment = Segment(label, load="1")
        return SimpleNamespace(
            action=Action(action), segment=segment, primary=None, **plain | changes
        )

    fleet = fleet_verdict(
        [
            verdict("a", "inconclusive"),
            verdict("b", "inconclusive"),
            verdict("c", "collect_baseline"),
            verdict("d", "not_comparable", flags=("SAMPLE_RATIO",)),
            verdict("e", "engine_fault", flags=("OUTPUTS_DIFFER",)),
            verdict("f", "inconclusive", speedups=()),
        ],
        {"1": "light"},
    )

    assert tuple(map(words.need, fleet.still_needed)) == (
        "about 40 pairs in total for a, light; b, light",
        "blocks at k = 0 beside the other blocks of c, light",
        "a router that does not see the arm for d, light",
        "pairs of k = 0 and another draft length, both followed by the engine, for f, light",
    )
    assert tuple(map(words.change, fleet.would_change)) == (
        "outputs that equal target-only's would make e, light pay",
    )


def test_eight_segments_take_forty_lines_of_a_terminal():
    loads = [("light", "1"), ("heavy", "17-64")]
    gains = [(name, load) for name in ("json", "sql", "prose") for load in loads]
    segments = [
        a_segment(name, name=f"{name}, {load}", load=bucket, reasons=[])
        for name, (load, bucket) in gains
    ]
    segments += [
        a_segment("python", "disable", None, name=f"python, {load}", load=bucket, **a_loss())
        for load, bucket in loads
    ]
    plain = a_report(segments=segments)
    stories = [replace(plain.stories[0], load=load) for load, _ in loads]
    gain = Interval(1.5, 1.4, 1.6)
    worth = Worth(METRICS["throughput"], gain, None, (None, None), None, None, None)
    changes = [
        ChangeRow(one.name, "enable", 0, 4, None, "measured", "high", 24, "", worth)
        for one in segments[:5]
    ]
    how = HowRow(["+"], "specscope gate apply --note 'weekly report'", {})
    text = io.StringIO()

    show(
        replace(plain, stories=stories, changes=changes, how=how),
        Console(file=text, width=80, no_color=True),
    )

    lines = text.getvalue().splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
