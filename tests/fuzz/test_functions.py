"""A little of `make sweep`: it finds the function that does not end, and clears those that do."""

from __future__ import annotations

import pytest
from fuzz import functions

from specscope.service.guard import allowed


@pytest.fixture(scope="module")
def engine():
    engine = functions.Engine()
    yield engine
    engine.close()


def verdicts(engine, *names):
    return {one.name: functions.judge(engine, one).verdict for one in functions.functions(names)}


def test_a_function_that_no_limit_ends_is_found_and_is_on_no_list(engine, monkeypatch):
    monkeypatch.setattr(functions, "CPU_S", 3.0)

    assert verdicts(engine, "editDistance") == {"editDistance": "endless"}
    assert "editdistance" not in {name.lower() for name in allowed("functions")}


def test_functions_that_telemetry_needs_end(engine):
    names = ("arrayMap", "countIf", "quantileExact", "toStartOfMinute", "lower", "has")

    found = verdicts(engine, *names)

    assert set(found.values()) == {"ends"}
    assert len(found) == len(names) - 1  # a combinator is no function of its own


def test_a_call_that_the_guard_refuses_is_no_finding():
    assert functions.refused("SELECT REGEXP_REPLACE('a', concat(repeat('a', 65000), 'b'), '')")
    assert not functions.refused("SELECT REGEXP_REPLACE('a', 'b', '') FROM numbers(64)")
