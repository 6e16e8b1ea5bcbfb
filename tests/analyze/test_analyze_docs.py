"""The page says what the code does."""

import re
from pathlib import Path

from specscope.analyze.differences import BAND
from specscope.analyze.pool import MOST_WINDOWS
from specscope.analyze.result import SCHEMA, TIME_FIELDS, WINDOW_FIELDS
from specscope.readers.tables import headers
from specscope.readers.traces.round_time import ENOUGH_COVERAGE

PAGE = (Path(__file__).parents[2] / "docs/analyze.md").read_text()


def test_every_field_of_the_schema_is_on_the_page():
    quoted = set(re.findall(r'"(\w+)"', PAGE))

    assert SCHEMA in PAGE
    assert set(WINDOW_FIELDS) | set(TIME_FIELDS) <= quoted


def test_every_column_that_the_page_names_is_known():
    section = PAGE.partition("## A benchmark table")[2].partition("##")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [cell for row in rows for cell in row.split("|")[1:3]]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    groups = (headers.CLASS, headers.SECONDS)
    known = {alias for group in groups for names in group.values() for alias in names.split()}
    known |= {*headers.KNOWN, *headers.ARM, *headers.K}

    assert len(named) > 30
    assert named <= known


def test_the_limits_on_the_page_are_those_of_the_code():
    assert f"at most {MOST_WINDOWS} windows" in PAGE
    assert f"within {BAND:.0%} of 1".replace("%", " %") in PAGE
    assert f"at least {ENOUGH_COVERAGE:.0%}".replace("%", " %") in PAGE
