"""What engines can be told of a table, and what is lost in telling."""

from dataclasses import replace
from itertools import pairwise, product
from types import SimpleNamespace

import pytest
from evaluate.block_rows import Kind, rows
from gate.judged import of_epoch, recommend
from hypothesis import given, settings
from hypothesis import strategies as st

from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.verdict.verdict import Action, Confidence, Grade, Verdict
from specscope.gate.export import NAMES, export
from specscope.gate.places import Place
from specscope.gate.rules import Move
from specscope.gate.schedule import Schedule, Step, best_schedule, pool_split
from specscope.policy.table import REPLAYED, Cell, GateTable, State

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


def a_move(label, batch, speeds, new_k, grade="measured"):
    """A decided place. speeds: tokens a second, by the draft lengths that ran."""
    arms = tuple(SimpleNamespace(arm=f"k{k}", k=k, tokens_per_s=speeds[k]) for k in sorted(speeds))
    verdict = Verdict(
        epoch="e", segment=Segment(label), action=Action.KEEP, k=new_k, grade=Grade(grade),
        confidence=Confidence.HIGH,
        reasons=(), speedups=(), metric="", arms=arms, best=(), pairs=40, pairs_needed=None,
        flags=(), left_out=(),
    )  # fmt: skip
    place = Place(verdict, Cell(0, label, batch=batch), State(label), 1.0, 1)
    return Move(place, "keep", new_k, new_k, "")


@st.composite
def full_tables(draw):
    """Two kinds of traffic, each with its own ranges of the batch and lengths that ran there."""
    moves = []
    for label in draw(st.sampled_from([["sql"], ["sql", "prose"]])):
        cuts = draw(st.lists(st.integers(2, 40), max_size=2, unique=True).map(sorted))
        for low, high in pairwise([0, *cuts, None]):
            ks = [0, *draw(st.lists(st.sampled_from([1, 2, 4]), max_size=3, unique=True))]
            speeds = {k: draw(st.integers(10, 500)) / 10 for k in ks}
            moves.append(a_move(label, (low, high), speeds, draw(st.sampled_from(ks))))
    return moves


LOOKUPS = {
    "vllm": lambda settings, batch: vllm_lookup(settings, batch) if settings else 0,
    "sglang": sglang_lookup,
    "tensorrt-llm": lambda settings, batch: tensorrt_lookup(settings, batch) if settings else 0,
}


@settings(derandomize=True, max_examples=150, deadline=None)
@given(full_tables(), st.integers(1, 64), st.sampled_from(sorted(LOOKUPS)))
def test_no_table_that_an_engine_can_be_told_beats_the_exported_one(moves, largest, engine):
    lows = sorted({max(1, move.place.cell.batch[0]) for move in moves})
    lows = [low for low in lows if low <= largest]
    there = [
        [
            (
                {arm.k: 1 / arm.tokens_per_s for arm in move.place.verdict.arms},
                move.new_k,
            )
            for move in moves
            if move.place.cell.batch[0] <= low
            and (move.place.cell.batch[1] is None or low < move.place.cell.batch[1])
        ]
        for low in lows
    ]

    def time_of(table):
        return sum(ms[k] for traffic, k in zip(there, table, strict=True) for ms, _ in traffic)

    tried = [set.intersection(*(set(ms) for ms, _ in traffic)) for traffic in there]
    best = min(time_of(table) for table in product(*map(sorted, tried)))
    full = sum(ms[k] for traffic in there for ms, k in traffic)

    out = export(engine, GateTable(), moves, largest)

    told = [
        {LOOKUPS[engine](out.settings, batch) for batch in range(low, following)}
        for low, following in pairwise([*lows, largest + 1])
    ]
    assert all(len(lengths) == 1 for lengths in told)
    assert time_of([k for (k,) in told]) == pytest.approx(best)
    assert out.regret == pytest.approx(max(0.0, 1 - full / best))
    assert out.unknown == ()


def test_a_regret_that_is_unknown_says_why():
    sql = a_move("sql", (0, None), {0: 10.0, 4: 20.0}, 4)
    logs = a_move("logs", (0, None), {}, 2, grade=REPLAYED)

    out = export("vllm", GateTable(), [sql, logs])

    assert out.regret is None
    assert out.unknown == (
        "logs is decided by a replay, which gives a ratio and no time per token",
    )
    other = a_move("logs", (0, None), {2: 10.0}, 2)
    assert best_schedule([sql, other]).unknown == (
        "no draft length was tried by all traffic from batch 1 on",
    )
    held = a_move("sql", (0, None), {0: 10.0, 4: 20.0}, 3)
    assert best_schedule([held]).unknown == (
        "a length of the full table never ran from batch 1 on",
    )


def test_undecided_traffic_is_not_told_to_speculate():
    evidence = of_epoch(*rows({"sql": WIN}, pairs=3))
    moves = recommend(evidence, GateTable((), 0), now=10**18).moves

    schedule = best_schedule(moves)

    assert schedule.steps == (Step(1, None, 0),)
    assert schedule.regret is None
    assert schedule.unknown == ("sql 0-1k 65-256 at load 5-16 is not decided",)


def undecided(move):
    verdict = replace(
        move.place.verdict, action=Action.INCONCLUSIVE, k=None, confidence=Confidence.NONE
    )
    return replace(move, place=replace(move.place, verdict=verdict), rule="insufficient")


def test_no_decision_on_other_traffic_turns_undecided_traffic_off():
    speeds = {0: 20.0, 4: 10.0}
    prose = a_move("prose", (0, None), speeds, 0)
    sql = undecided(a_move("sql", (0, None), speeds, 4))

    assert best_schedule([prose]).steps == (Step(1, None, 0),)
    assert best_schedule([prose, sql]).steps == (Step(1, None, 4),)
    assert "undecided traffic keeps k = 4 from batch 1 on" in best_schedule([prose, sql]).unknown


def test_what_runs_now_stays_if_nothing_is_decided_or_nothing_was_tried_by_all():
    slow, fast = {0: 10.0, 2: 12.0}, {3: 10.0, 4: 20.0}
    moves = [a_move("sql", (0, None), slow, 2), a_move("logs", (0, None), fast, 4)]

    assert best_schedule([undecided(move) for move in moves]).steps == (Step(1, None, 2),)
    assert best_schedule(moves).steps == (Step(1, None, 2),)
    assert best_schedule([], in_force=(0, 5)).steps == (Step(1, None, 5),)
    assert best_schedule([], in_force=(0,)).steps == (Step(1, None, 0),)
