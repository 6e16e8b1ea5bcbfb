"""What engines can be told of a table, and what is lost in telling."""

from itertools import pairwise

import pytest
from evaluate.block_rows import Kind, rows

from specscope.gate.evidence import of_epoch
from specscope.gate.export import NAMES, export
from specscope.gate.recommend import recommend
from specscope.gate.schedule import Schedule, Step, best_schedule, pool_split
from specscope.gate.table import GateTable

COST = {0: 1.0, 2: 1.3, 4: 1.6}
WIN = Kind({0: 1.0, 2: 2.2, 4: 3.6}, COST)  # 1.69, 2.25
LOSE = Kind({0: 1.0, 2: 1.15, 4: 1.2}, COST)  # 0.88, 0.75


def moves_of(kinds, in_force=4):
    evidence = of_epoch(*rows(kinds, noise=0.001, drift=0.0))
    found = recommend(evidence, GateTable((), in_force), now=10**18)
    return found.new, found.moves


def test_one_class_is_expressed_without_regret():
    table, moves = moves_of({"sql": WIN})

    schedule = best_schedule(moves)

    assert schedule.steps == (Step(1, None, 4),)
    assert schedule.regret == pytest.approx(0.0, abs=1e-9)
    assert export("vllm", table, moves).router == ()


def test_classes_that_disagree_cost_what_arithmetic_says():
    table, moves = moves_of({"sql": WIN, "prose": LOSE})

    schedule = best_schedule(moves)

    full = 1 / (1 / 2.25 + 1 / 1)
    each = {0: 1 / 2, 2: 1 / (1.3 / 2.2 + 1.3 / 1.15), 4: 1 / (1 / 2.25 + 1 / 0.75)}
    best = max(each, key=each.get)
    assert schedule.steps == (Step(1, None, best),)
    assert schedule.regret == pytest.approx(1 - each[best] / full, abs=5e-3)
    out = export("vllm", table, moves)
    assert out.routed_regret == pytest.approx(0.0, abs=1e-9)
    assert out.router == (
        {"class": "prose", "pool": "target_only"},
        {"class": "sql", "pool": "speculative"},
    )


def test_two_pools_are_those_that_speculate_and_those_that_do_not():
    _, moves = moves_of({"sql": WIN, "logs": WIN, "prose": LOSE})

    assert pool_split(moves) == (["logs", "sql"], ["prose"])


FALLING = Schedule((Step(1, 4, 4), Step(5, 16, 2), Step(17, None, 0)), 0.0)
ONE = Schedule((Step(1, 16, 4), Step(17, None, 0)), 0.0)
ALWAYS = Schedule((Step(1, None, 3),), 0.0)
OFF = Schedule((Step(1, None, 0),), 0.0)
MIDDLE = Schedule((Step(1, 4, 0), Step(5, 16, 2), Step(17, None, 0)), 0.0)


def setting(engine, schedule):
    from specscope.gate.export import ENGINES

    return ENGINES[engine](schedule, 256)


def vllm_lookup(settings, batch):
    """The contract of the engine: inclusive ranges, sorted, disjoint, the first from 1."""
    ranges = settings["num_speculative_tokens_per_batch_size"]
    assert ranges[0][0] == 1
    assert all(a[1] < b[0] for a, b in pairwise(ranges))
    return next(k for low, high, k in ranges if low <= batch <= high)


def sglang_lookup(settings, batch):
    low = max(int(key) for key in settings if int(key) <= batch)
    (k,) = settings[str(low)]["candidate_steps"]
    return k


def tensorrt_lookup(settings, batch):
    if "draft_len_schedule" in settings:
        above = [size for size in settings["draft_len_schedule"] if size >= batch]
        return settings["draft_len_schedule"][min(above)] if above else 0
    return settings["max_draft_len"] if batch <= settings.get("max_concurrency", 10**9) else 0


def wanted(schedule, batch):
    return next(
        s.k for s in schedule.steps if s.low <= batch and (s.high is None or batch <= s.high)
    )


@pytest.mark.parametrize("schedule", [FALLING, ONE, ALWAYS, MIDDLE])
@pytest.mark.parametrize(
    ("engine", "lookup"),
    [("vllm", vllm_lookup), ("sglang", sglang_lookup), ("tensorrt-llm", tensorrt_lookup)],
)
def test_every_engine_reads_the_schedule_that_was_meant(engine, lookup, schedule):
    settings = setting(engine, schedule)

    for batch in (1, 4, 5, 16, 17, 100, 256):
        assert lookup(settings, batch) == wanted(schedule, batch)


def test_settings_in_the_words_of_each_engine():
    assert setting("vllm", FALLING) == {
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 16, 2], [17, 256, 0]],
    }
    assert setting("tensorrt-llm", ONE) == {"max_draft_len": 4, "max_concurrency": 16}
    assert setting("tensorrt-llm", FALLING)["draft_len_schedule"] == {4: 4, 16: 2}
    assert setting("sglang", ONE) == {
        "1": {"candidate_steps": [4]},
        "17": {"candidate_steps": [0]},
    }


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm"])
def test_an_engine_that_should_not_speculate_gets_no_settings(engine):
    assert setting(engine, OFF) == {}


def test_our_own_policy_is_the_whole_table():
    table, moves = moves_of({"sql": WIN, "prose": LOSE})

    out = export("specscope", table, moves)

    assert out.settings == table.as_json()
    assert out.regret == 0.0
    assert set(NAMES) == {"vllm", "sglang", "tensorrt-llm", "specscope"}


def test_only_draft_lengths_that_all_traffic_tried_are_compared():
    _, a = moves_of({"sql": Kind({0: 1.0, 3: 2.5}, {0: 1.0, 3: 1.4})}, 0)
    _, b = moves_of({"logs": Kind({0: 1.0, 4: 3.0}, {0: 1.0, 4: 1.6})}, 0)

    schedule = best_schedule([*a, *b])

    assert schedule.steps == (Step(1, None, 0),)
    assert schedule.regret == pytest.approx(1 - (1.4 / 2.5 + 1.6 / 3.0) / 2, abs=5e-3)


def test_undecided_traffic_is_not_told_to_speculate():
    evidence = of_epoch(*rows({"sql": WIN}, pairs=3))
    moves = recommend(evidence, GateTable((), 0), now=10**18).moves

    schedule = best_schedule(moves)

    assert schedule.steps == (Step(1, None, 0),)
    assert schedule.regret is None
