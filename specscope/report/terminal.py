"""The verdict table for a terminal: rich where it is installed, readable without colour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specscope.report.model import Report, SegmentRow, StoryRow
from specscope.report.phrases.actions import gain_said, length_said, worth_trying
from specscope.report.phrases.evidence import outputs_said
from specscope.report.phrases.numbers import interval, number
from specscope.report.phrases.segments import (
    deciding_arm,
    load_said,
    metrics_said,
    priced,
    verdict,
    why,
)

COLOURS = {"keep": "green", "set_k": "green", "disable": "red", "engine_fault": "red"}


def show(report: Report, console: Console) -> None:
    """Print the headline, the verdicts with their reasons, the story, and the losses."""
    report = _printable(report)
    console.print(Text(report.headline, style="bold"))
    console.print(_table(report.segments))
    if report.changes:
        console.print(_changes(report))
    if report.how:
        console.print(f"to do it: {report.how.command}", markup=False, highlight=False)
    for line in _reasons(report):
        console.print(line, markup=False, highlight=False)
    for title, lines in (
        ("still needed", report.still_needed),
        ("would change it", report.would_change),
    ):
        if lines:
            console.print(f"{title}: {'; '.join(lines)}", markup=False, highlight=False)
    for line in (*metrics_said(report), *_together(report), *_on_the_page(report)):
        console.print(line, markup=False, highlight=False)
    for story in report.stories:
        console.print(_story(story), markup=False, highlight=False)
    console.print(outputs_said(report), markup=False, highlight=False)
    accounting = report.accounting
    console.print(
        f"records: {accounting.recorded} written = {accounting.stored} stored "
        f"+ {accounting.lost} lost" + ("" if accounting.closed else ": the numbers do not add up"),
        highlight=False,
    )
    for loss in report.losses:
        count = "an unknown number of" if loss.count is None else loss.count
        console.print(
            f"- lost: {count} {loss.table} records of {loss.replica}: {loss.meaning} "
            f"({loss.reason})",
            markup=False,
            highlight=False,
        )
    for line in (*report.findings, *report.notes):
        console.print(f"- {line}", markup=False, highlight=False)


def _printable(value: Any) -> Any:
    """Strip terminal control sequences from a value's texts; clients choose the names."""
    if isinstance(value, str):
        return "".join(letter for letter in value if letter.isprintable())
    if isinstance(value, list):
        return [_printable(one) for one in value]
    if isinstance(value, dict):
        return {_printable(name): _printable(one) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{name: _printable(one) for name, one in held.items()})
    return value


def _table(segments: list[SegmentRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("traffic", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for heading in ("tokens/round", "speedup", "interval", "pairs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for segment in segments:
        best = deciding_arm(segment)
        table.add_row(
            segment.name,
            Text(verdict(segment), style=COLOURS.get(segment.action, "")),
            number(best.tokens_per_round) if best else "–",
            f"{number(best.speedup)}x" if best else "–",
            interval(best.low, best.high) if best else "–",
            str(best.pairs if best else 0),
        )
    return table


def _changes(report: Report) -> Table:
    """The proposed changes, a row each."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("do this", "draft length", "gain"):
        table.add_column(heading, no_wrap=True)
    for change in report.changes:
        gain = "not measured" if change.worth is None else gain_said(change.worth, brief=True)
        table.add_row(change.segment, length_said(change), gain)
    return table


def _together(report: Report) -> Iterator[str]:
    """Every arm over all traffic, in one line."""
    if report.fleet:
        ratios = ", ".join(f"{row.arm} {number(row.standardised)}x" for row in report.fleet)
        yield f"all traffic together, at the fleet's mix: {ratios}"


def _reasons(report: Report) -> Iterator[str]:
    """A line per segment with reasons that the table does not show."""
    for segment in report.segments:
        if said := why(segment, brief=True):
            yield f"- {segment.name}: {said}"


def _on_the_page(report: Report) -> Iterator[str]:
    """Pointers to the sections that only the page shows."""
    trials, arms = len(worth_trying(report)), len(priced(report))
    lists = (
        [f"untried draft lengths of {trials} segment{'s' if trials != 1 else ''}"] if trials else []
    )
    lists += ["the price of every arm's tokens"] if arms else []
    if lists:
        yield f"in the report: {', '.join(lists)}"


def _story(story: StoryRow) -> str:
    """One draft length for all against one per class, in a sentence."""
    switches = ", ".join(f"k = {one.k} {number(one.value)}x" for one in story.switches)
    table = ", ".join(f"{label} {k}" for label, k in story.table.items())
    return (
        f"under {load_said(story.load)}, for all: {switches}; one draft length per class ({table}) "
        f"{number(story.gate.value)}x ({interval(story.gate.low, story.gate.high)})"
    )
