"""Rules that hold for every page: contrast, phone, dark, print, pictures with text, valid tags."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from reports import a_report, a_segment
from waiting import PATIENCE_S

from specscope.evaluate.experiment.objectives import METRICS
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.verdict import Flag
from specscope.report.canvas import PAGE_COLOURS, SERIES
from specscope.report.model import ChangeRow, EventRow, FlagRow, HowRow, Interval, Worth
from specscope.report.phrases.actions import change_said, worth_said
from specscope.report.phrases.numbers import short
from specscope.report.plots_over_time import MARKS
from specscope.report.render import to_html, write

WORTH = Worth(
    metric=METRICS["throughput"],
    speedup=Interval(1.25, 1.2, 1.3),
    tokens_per_second=Interval(45.0, 36.0, 54.0),
    token_time_p95_ms=(12.8, 8.8),
    replica_hours=Interval(10.0, 8.0, 12.0),
    gpu_hours=Interval(80.0, 64.0, 96.0),
    money=Interval(200.0, 160.0, 240.0),
)
CHANGE = ChangeRow(
    segment="prose, light", rule="disable", old_k=4, new_k=0, arm=None, grade="measured",
    confidence="high", pairs=40, cell="prose: k = 0", worth=WORTH,
)  # fmt: skip


def full_report(**changes):
    report = a_report()
    how = HowRow(["+ prose: k = 0 [measured]"], "specscope gate apply", {"vllm": {"a": 4}})
    event = EventRow(report.created_at, "deploy", "r0", "ada", "version 2")
    return replace(report, changes=[CHANGE], how=how, events=[event], **changes)


def palettes():
    """The colours of the light and of the dark page, by name."""
    style = re.search(r"<style>(.*?)</style>", to_html(full_report()), re.S)[1]
    light, dark = re.findall(r":root \{([^}]*)\}", style)[:2]
    return [dict(re.findall(r"(--\w+): (#[0-9a-f]{6})", text)) for text in (light, dark)]


FAINT = ("--line", "--fill")  # of grids and of what nobody saw


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", palettes(), ids=["light", "dark"])
@pytest.mark.parametrize("text", ["--ink", "--soft", "--win", "--loss"])
@pytest.mark.parametrize("behind", ["--page", "--card"])
def test_text_stands_out_from_what_is_behind_it(colours, text, behind):
    assert contrast(colours[text], colours[behind]) >= 4.5  # WCAG 2.1, level AA


@pytest.mark.parametrize("colours", palettes(), ids=["light", "dark"])
@pytest.mark.parametrize("line", [name for name in PAGE_COLOURS.values() if name not in FAINT])
def test_a_line_of_a_picture_stands_out_from_the_page(colours, line):
    assert contrast(colours[line], colours["--page"]) >= 3.0  # WCAG 2.1, graphics


def test_every_colour_of_a_picture_is_the_page_s_own():
    light, _ = palettes()

    assert {colour: light[name] for colour, name in PAGE_COLOURS.items()} == {
        colour: colour for colour in PAGE_COLOURS
    }
    assert set(SERIES) <= PAGE_COLOURS.keys()
    assert set(MARKS.values()) <= PAGE_COLOURS.keys()


@pytest.mark.parametrize(
    ("value", "said"),
    [(1784.0, "1,780"), (123456.0, "123,000"), (0.0, "0"), (5.0, "5"), (12.345, "12.3"),
     (0.41, "0.41"), (-2500.0, "-2,500"), (None, "–"), (float("nan"), "–")],
)  # fmt: skip
def test_a_large_number_has_no_exponent(value, said):
    assert short(value) == said


def test_the_two_pages_are_two():
    light, dark = palettes()

    assert light.keys() == dark.keys()
    assert luminance(light["--page"]) > 0.9
    assert luminance(dark["--page"]) < 0.1


def test_a_picture_says_in_words_what_it_shows():
    page = to_html(full_report())

    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        assert 'role="img"' in svg.split(">")[0]
        assert re.search(r"<title>[^<]+</title><desc>[^<]+</desc>", svg)
        assert "var(--ink)" in svg
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^")]+)\)', page)) <= {
        pair for one in ids for pair in ((one, ""), ("", one))
    }


class Balanced(HTMLParser):
    """Every tag is closed in the order in which it was opened."""

    VOID = frozenset({"meta", "br", "img", "link", "hr", "input"})

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "report",
    [full_report(), a_report(segments=[], stories=[], losses=[], replicas=[], outputs=[])],
    ids=["full", "empty"],
)
def test_tags_are_balanced(report):
    parser = Balanced()
    parser.feed(to_html(report))

    assert parser.open == []


def test_the_first_thing_on_the_page_is_what_to_do():
    page = to_html(full_report())

    assert page.index("Do this") < page.index("Verdicts") < page.index("Why it loses")
    assert "switch speculation off: k = 4 to k = 0" in page
    assert "specscope gate apply" in page
    nothing = to_html(a_report())
    assert "all traffic already runs its best draft length" in nothing


def test_a_worth_says_speed_delay_hours_and_money_with_their_intervals():
    assert worth_said(CHANGE) == [
        "+25 % (+20 to +30) output tokens per second",
        "p95 of time per token 12.8 to 8.8 ms",
        "saves 80 GPU hours per week (64 to 96)",
        "saves 200 in the currency of your price per week (160 to 240)",
    ]
    bare = replace(
        WORTH, gpu_hours=None, money=None, token_time_p95_ms=(None, 8.8),
        speedup=Interval(1.25, None, None),
    )  # fmt: skip
    assert worth_said(replace(CHANGE, worth=bare)) == [
        "+25 % output tokens per second",
        "saves 10 replica hours per week (8 to 12)",
    ]
    assert worth_said(replace(CHANGE, worth=None)) == ["worth not measured"]


def test_a_worth_is_said_in_the_metric_that_decides():
    calm = replace(
        WORTH, metric=METRICS["latency"], speedup=Interval(1.25, 1.0, 1.6), tokens_per_second=None,
        gpu_hours=None, money=None,
    )  # fmt: skip

    first, *_, hours = worth_said(replace(CHANGE, worth=calm))
    assert first == "-20.0 % (-37.5 to +0.0) time per output token"
    assert hours == "saves 10 busy replica hours per week (8 to 12)"
    between = replace(calm, metric="both of them, each with its weight")
    assert worth_said(replace(CHANGE, worth=between))[0].startswith("+25 % (+0 to +60)")


def test_a_table_that_is_adopted_names_the_arm_that_ran_it():
    assert change_said(replace(CHANGE, rule="adopt", arm="sharp")).endswith("to that of sharp")
    assert change_said(replace(CHANGE, arm="k0")).endswith("the table in force to k = 0")


def test_markdown_says_what_the_page_says_first(tmp_path):
    write(full_report(), tmp_path)
    text = (tmp_path / "report.md").read_text()

    assert text.index("## Do this") < text.index("## Verdicts")
    for line in (*worth_said(CHANGE), "+ prose: k = 0 [measured]", "specscope gate apply"):
        assert line in text
    assert "deploy of r0 by ada: version 2" in text


CHROMIUM = shutil.which("chromium")
PHONE = """<!doctype html><body><iframe style="width:390px;height:844px;border:0"></iframe><script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  const inner = frame.contentDocument, root = inner.documentElement;
  const top = (text) => [...inner.querySelectorAll("p, h3")].find(
    (one) => one.textContent.includes(text)).getBoundingClientRect().bottom;
  document.title = [root.scrollWidth, Math.round(top("switch speculation off")),
    Math.round(top("output tokens per second"))].join(" ");
});
frame.srcdoc = PAGE;
</script></body>"""


@pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="no chromium on this machine"
)
def test_on_a_phone_the_page_does_not_scroll_sideways_and_begins_with_the_verdict(tmp_path):
    import json

    long_name = a_segment(name="a class whose name is long enough for two lines of a phone, light")
    report = full_report(segments=[*a_report().segments, long_name])
    frame = tmp_path / "phone.html"
    page = json.dumps(to_html(report)).replace("</", "<\\/")
    frame.write_text(PHONE.replace("PAGE", page))

    run = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking",
            "--disable-component-update", "--virtual-time-budget=10000",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )  # fmt: skip

    title = html.unescape(re.search(r"<title>([^<]*)</title>", run.stdout)[1])
    width, verdict_ends, speedup_ends = map(int, title.split())
    assert width <= 390
    assert 0 < verdict_ends < 844
    assert 0 < speedup_ends < 844


FLAGGED = a_segment(
    flags=[FlagRow("INCONSISTENT_BASELINE", words.FLAGS[Flag.INCONSISTENT_BASELINE].sentence)],
    grade="none", confidence="low",
)  # fmt: skip


@pytest.mark.parametrize(
    "report",
    [full_report(), a_report(segments=[], stories=[]), a_report(segments=[FLAGGED])],
    ids=["full", "empty", "flagged"],
)
def test_a_reader_sees_words_and_no_identifiers(report):
    page = re.sub(
        r"<style>.*?</style>|<metadata>.*?</metadata>|<pre.*?</pre>",
        "",
        to_html(report),
        flags=re.S,
    )
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))

    names = re.findall(r"\b\w*[A-Za-z]_\w+", text)
    assert [name for name in names if not name.startswith("SPECSCOPE_")] == []
