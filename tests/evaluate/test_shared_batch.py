"""Classes that share a batch: kept, routed or undecided by what they waited under the table."""

import dataclasses
import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from specscope.evaluate.experiment.blocks import BlockClass
from specscope.evaluate.statistics.quantiles import bin_of
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.shared_batch import judge_delays

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


BLOCK_SD, REQUEST_SD = 0.08, 0.5


def true_p95():
    """Of a lognormal around 10 ms whose blocks and requests both spread."""
    return 10.0 * math.exp(stats.norm.isf(0.05) * math.hypot(BLOCK_SD, REQUEST_SD))


def at_the_edge(drawn, classes, blocks, requests=20):
    """Classes that share all blocks, and wait exactly as long as they are allowed."""
    found = []
    for class_ in classes:
        middle = 10.0 * np.exp(drawn.normal(0, BLOCK_SD, blocks))
        for pair, one in enumerate(middle, start=1):
            ms = one * np.exp(drawn.normal(0, REQUEST_SD, requests))
            counts = Counter(bin_of(value) for value in ms)
            found.append(
                BlockClass(
                    epoch="e", policy=2, replica="r", boot="b", pair=pair, arm="current",
                    class_=class_, requests=requests, tpot_bins=tuple(sorted(counts)),
                    tpot_counts=tuple(counts[b] for b in sorted(counts)),
                )
            )  # fmt: skip
    return found


def test_of_many_classes_together_hardly_one_is_routed_wrongly():
    drawn = np.random.default_rng(1)
    names = [f"c{i}" for i in range(8)]
    rules = Rules(tpot_allowance_ms=dict.fromkeys(names, true_p95()))
    wrong = apart = 0
    for _ in range(150):
        rows_ = at_the_edge(drawn, names, blocks=24)
        wrong += "route" in actions(rows_, rules).values()
        one_by_one = (
            actions([r for r in rows_ if r.class_ in (name, names[0])], rules).get(name)
            for name in names[1:]
        )
        apart += "route" in one_by_one

    assert wrong / 150 <= 0.05
    assert apart > wrong


def test_looking_after_every_block_routes_hardly_any_class_wrongly():
    drawn = np.random.default_rng(2)
    allowed = {"chat": true_p95()}
    wrong = Counter()
    for _ in range(120):
        rows_ = at_the_edge(drawn, ["chat", "other"], blocks=120)
        seen = {True: set(), False: set()}
        for looked in range(20, 121, 10):
            now = [r for r in rows_ if r.pair <= looked]
            for often in seen:
                rules = Rules(tpot_allowance_ms=allowed, looked_at_often=often)
                seen[often] |= set(actions(now, rules).values())
        for often, found in seen.items():
            wrong[often] += "route" in found

    assert wrong[True] / 120 <= 0.05 < wrong[False] / 120


def test_evidence_that_is_looked_at_often_waits_for_its_first_look():
    often = dataclasses.replace(RULES, looked_at_often=True, min_pairs=5)
    long = [*rows("chat", 60.0, pairs=40), *rows("sql", 8.0, pairs=40)]
    short = [row for row in long if row.pair <= 12]

    assert actions(short, dataclasses.replace(often, looked_at_often=False)) == {
        "chat": "route",
        "sql": "keep",
    }
    assert actions(short, often) == {"chat": "inconclusive", "sql": "keep"}
    assert actions(long, often) == {"chat": "route", "sql": "keep"}
