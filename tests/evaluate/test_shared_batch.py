"""Classes that share a batch: kept, routed or undecided by what they waited under the table."""

import dataclasses
import json
import random

import pytest

from specscope.evaluate.blocks import BlockClass
from specscope.evaluate.choice import Rules
from specscope.evaluate.quantiles import bin_of
from specscope.evaluate.shared_batch import judge_delays

RULES = Rules(tpot_allowance_ms={"chat": 20.0, "sql": 20.0})


def rows(class_, tpot_ms, *, arm="current", pairs=24, requests=8, spread=0.1, seed=1):
    """Blocks of one class: requests whose time per token is lognormal around a middle."""
    drawn = random.Random(f"{class_}/{arm}/{seed}")
    found = []
    for pair in range(1, pairs + 1):
        bins = sorted(bin_of(tpot_ms * drawn.lognormvariate(0, spread)) for _ in range(requests))
        found.append(
            BlockClass(
                epoch="e", policy=2, replica="r", boot="b", pair=pair, arm=arm, class_=class_,
                requests=requests, tpot_bins=tuple(bins), tpot_counts=(1,) * requests,
            )
        )  # fmt: skip
    return found


def actions(given, rules=RULES):
    return {one.class_: one.action for one in judge_delays(given, rules)}


def test_a_class_that_waits_too_long_for_its_neighbours_is_routed_and_the_others_stay():
    given = [*rows("chat", 30.0), *rows("sql", 8.0), *rows("chat", 12.0, arm="k0")]

    delays = judge_delays([*given, *rows("sql", 12.0, arm="k0")], RULES)

    assert {one.class_: one.action for one in delays} == {"chat": "route", "sql": "keep"}
    chat = next(one for one in delays if one.class_ == "chat")
    assert chat.tpot_p95_ms["current"].low < 30.0 * 2.718**0.1645 < chat.tpot_p95_ms["current"].high
    assert "20 are allowed" in chat.reason
    assert "under k0" in chat.reason


def test_nothing_is_said_of_a_class_alone_without_allowance_or_that_never_ran_under_the_table():
    alone = rows("chat", 30.0)
    other = [*rows("sql", 8.0), *rows("prose", 30.0)]
    never = [*rows("chat", 30.0, arm="k4"), *rows("sql", 8.0, arm="k4")]

    assert actions(alone) == {}
    assert actions(other) == {"sql": "keep"}
    assert actions(never) == {}


@pytest.mark.parametrize("given", [{"pairs": 5}, {"requests": 1}, {"tpot_ms": 17.2}])
def test_few_blocks_few_requests_or_an_allowance_within_the_interval_decide_nothing(given):
    chat = {"tpot_ms": 30.0, **given}
    found = judge_delays([*rows("chat", **chat), *rows("sql", 8.0, pairs=24)], RULES)

    found = [one for one in found if one.class_ == "chat"]
    assert [one.action for one in found] == ["inconclusive"]


def test_order_and_repetition_of_rows_do_not_matter():
    given = [*rows("chat", 30.0), *rows("sql", 8.0), *rows("chat", 12.0, arm="k0")]
    again = [*given, *given]
    random.Random(1).shuffle(again)

    def plain(delays):
        return json.dumps([dataclasses.asdict(one) for one in delays], sort_keys=True)

    assert plain(judge_delays(again, RULES)) == plain(judge_delays(given, RULES))
