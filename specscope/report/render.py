"""Render a report as a self-contained page, as Markdown and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from specscope.evaluate.verdict import cause_words
from specscope.report.model import SCHEMA, Report
from specscope.report.phrases import actions, evidence, numbers, segments
from specscope.report.pictures import pictures_of


def write(report: Report, folder: Path) -> Path:
    """Write report.html, report.md and report.json into a folder. Returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(to_json(report))
    (folder / "report.md").write_text(_template("report.md.j2").render(report=report))
    page = folder / "report.html"
    page.write_text(to_html(report))
    return page


def to_html(report: Report) -> str:
    """Render the page, which needs no network."""
    pictures = pictures_of(report)
    return str(_template("report.html.j2").render(report=report, pictures=pictures))


def to_json(report: Report) -> str:
    """The report's values with its schema's name; times in ISO 8601, unknown values as null."""
    values = {"schema": SCHEMA, **asdict(report)}
    return json.dumps(values, indent=1, default=_moment_json, allow_nan=False) + "\n"


def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("specscope.report"),
        autoescape=name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_on_a_page if name.endswith(".html.j2") else _in_a_cell,
    )
    for topic in (actions, evidence, numbers, segments):
        environment.filters.update(
            (name, words)
            for name, words in vars(topic).items()
            if getattr(words, "__module__", "") == topic.__name__
        )
    environment.filters.update(need=cause_words.need, cause=cause_words.name)
    return environment.get_template(name)


def _on_a_page(value: Any) -> Any:
    """Replace characters that HTML forbids; clients choose the names in a report."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(letter for letter in value if letter.isprintable() or letter in "\n\t")


def _in_a_cell(value: Any) -> Any:
    """Escape a value for a Markdown table, which a bar or an end of line would break."""
    if not isinstance(value, str):
        return value
    return "".join(letter if letter.isprintable() else " " for letter in value).replace("|", "\\|")


def _moment_json(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no place in a report")
