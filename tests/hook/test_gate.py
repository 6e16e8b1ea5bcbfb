"""The gate: which k, which arm, and when a policy takes effect."""

import json
from collections import Counter

import pytest
from hook_fakes import ManualClock, a_boot, a_round, drained

from specscope_hook.blocks import Blocks
from specscope_hook.errors import PolicyError
from specscope_hook.gate import Gate
from specscope_hook.payload import decode
from specscope_hook.recorder import Recorder
from specscope_hook.ring import NAME_ARM, Ring, RingReader

TABLE = {
    "policy": 5,
    "kind": "table",
    "seed": 1,
    "arms": [
        {"name": "k0", "k": 0},
        {"name": "k4"},
        {"name": "current"},
        {"name": "current+sql", "cells": [{"class": "sql", "k": 8}]},
    ],
    "table": [
        {"class": "sql", "context": [0, 1000], "k": 4},
        {"class": "sql", "batch": [None, 8], "k": 2},
        {"output": [512, None], "queue": [0, 1], "k": 3},
    ],
    "default_k": 1,
}


def blocks(**values):
    return TABLE | {"kind": "blocks", "block_ms": 1000, "share": 1.0, "first_pair": 0} | values


@pytest.mark.parametrize(
    ("asked", "k"),
    [
        (("sql", 999, 64, 50, 9), 4),
        (("sql", 1000, 64, 7, 9), 2),
        (("sql", 1000, 64, 8, 9), 1),
        (("chat", 10, 512, 8, 0), 3),
        (("chat", 10, 512, 8, 1), 1),
    ],
)
def test_the_first_cell_that_matches_decides(asked, k):
    assert Gate.from_policy(TABLE).k(*asked) == k


@pytest.mark.parametrize(("arm", "k"), [("k0", 0), ("k4", 4), ("k7", 7), ("current", 4)])
def test_an_arm_is_one_k_for_all_or_the_table(arm, k):
    assert Gate.from_policy(TABLE).k("sql", 10, 64, 1, 0, arm) == k


def test_an_arm_with_a_cell_puts_it_before_the_table():
    gate = Gate.from_policy(json.dumps(TABLE))

    assert gate.k("sql", 10, 64, 1, 0, "current+sql") == 8
    assert gate.k("chat", 10, 64, 1, 0, "current+sql") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": None},
        {"policy": -1},
        {"kind": "sometimes"},
        {"share": 2},
        {"arms": [{"name": "fast"}]},
        {"arms": [{"name": "current+x"}]},
        {"arms": ["k0"]},
        {"table": [{"class": 3, "k": 1}]},
        {"table": [{"context": [5, 5], "k": 1}]},
        {"table": [{"k": 300}]},
        {"table": [{"k": 1.5}]},
        {"table": [{}]},
        {"default_k": True},
        {"kind": "blocks", "block_ms": None},
        {"kind": "blocks", "block_ms": 10},
        {"policy": 2**32},
        {"seed": 2**64},
        {"first_pair": 2**32},
        {"block_ms": 2**32},
        {"share": 10**400},
    ],
    ids=str,
)
def test_what_is_not_a_policy_is_refused(wrong):
    with pytest.raises(PolicyError):
        Gate.from_policy(TABLE | wrong)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "{}"])
def test_text_that_is_not_a_policy_is_refused(text):
    with pytest.raises(PolicyError):
        Gate.from_policy(text)


def test_every_order_of_arms_is_drawn_equally_often():
    gate = Gate.from_policy(blocks(arms=[{"name": "k0"}, {"name": "k2"}, {"name": "k4"}]))

    orders = Counter(tuple(gate.order("r", "b", pair)) for pair in range(6000))

    assert len(orders) == 6
    # chi-square with 5 degrees of freedom: above 20.5 once in a thousand
    assert sum((count - 1000) ** 2 / 1000 for count in orders.values()) < 20.5


def test_an_order_can_be_recomputed_and_depends_on_where_and_when():
    gate, same = Gate.from_policy(blocks()), Gate.from_policy(blocks())
    other = Gate.from_policy(blocks(seed=2))

    drawn = [gate.order("r", "b", pair) for pair in range(50)]

    assert drawn == [same.order("r", "b", pair) for pair in range(50)]
    assert drawn != [other.order("r", "b", pair) for pair in range(50)]
    assert drawn != [gate.order("r", "c", pair) for pair in range(50)]
    assert gate.arm("r", "b", 3) == drawn[3][0]


def test_the_share_of_pairs_that_is_experimental_is_the_one_asked_for():
    gate = Gate.from_policy(blocks(share=0.25, first_pair=100))

    hits = sum(gate.experimental("r", "b", pair) for pair in range(100, 4100))

    assert 900 < hits < 1100
    assert not any(gate.experimental("r", "b", pair) for pair in range(100))
    assert gate.arm("r", "b", 5) == "current"


class Rig:
    def __init__(self, directory):
        self.clock = ManualClock()
        self.ring = Ring.create(directory / "a.ring", a_boot(), 1 << 16)
        self.reader = RingReader.open(self.ring.path)
        self.recorder = Recorder(self.ring, salt="s", clock=self.clock)
        self.blocks = Blocks(self.ring, self.recorder, "r0", "b0", self.clock)

    def arm_now(self):
        """Policy, pair and arm of a round that runs now."""
        self.blocks.turn()
        self.recorder.round(**a_round(0))
        record = decode(drained(self.reader)[0][-1])
        return record.policy, record.pair, self.reader.names(NAME_ARM).get(record.arm, "")


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def test_without_a_policy_there_is_no_k(rig):
    rig.blocks.turn()

    assert rig.blocks.k("sql", 1, 1, 1, 1) is None


def test_a_table_takes_effect_at_the_next_round(rig):
    rig.reader.control_write(json.dumps(TABLE))

    marked = rig.arm_now()

    assert marked == (5, 0, "")
    assert rig.blocks.k("sql", 10, 64, 1, 0) == 4


def test_blocks_follow_the_clock_and_the_order_that_was_drawn(rig):
    two = [{"name": "k0"}, {"name": "k4"}]
    pair = rig.clock.unix_ns() // 2_000_000_000 + 1
    rig.reader.control_write(json.dumps(blocks(arms=two, first_pair=pair)))
    gate = Gate.from_policy(blocks(arms=two, first_pair=pair))
    before = rig.arm_now()
    rig.clock.now_ns += pair * 2_000_000_000 - rig.clock.unix_ns()

    seen = []
    for _ in range(8):
        seen.append(rig.arm_now())
        rig.clock.pass_ms(1000)

    assert before == (0, 0, "")
    assert seen == [
        (5, pair + number // 2, gate.order("r0", "b0", pair + number // 2)[number % 2])
        for number in range(8)
    ]


def test_the_policy_before_stays_in_force_until_the_next_ones_first_pair(rig):
    rig.reader.control_write(json.dumps(TABLE))
    rig.arm_now()
    first = rig.clock.unix_ns() // 4_000_000_000 + 2
    rig.reader.control_write(json.dumps(blocks(policy=6, first_pair=first)))

    meanwhile = rig.arm_now()
    rig.clock.now_ns += first * 4_000_000_000 - rig.clock.unix_ns()
    then = rig.arm_now()

    assert meanwhile[0] == 5
    assert then[:2] == (6, first)


def test_a_wrong_policy_leaves_the_one_in_force_and_says_why(rig):
    rig.reader.control_write(json.dumps(TABLE))
    rig.arm_now()
    rig.reader.control_write("{}")

    rig.blocks.turn()

    assert rig.blocks.gate.policy == 5
    assert "policy" in rig.blocks.refused


def test_an_engine_that_does_not_follow_is_in_no_block_but_of_a_crossover(rig):
    rig.blocks = Blocks(rig.ring, rig.recorder, "r0", "b0", rig.clock, follows=False)
    said = []
    for number, arms in enumerate(([{"name": "k0"}], [{"name": "current"}], []), start=1):
        kind = "blocks" if arms else "table"
        policy = blocks(policy=number, arms=arms, kind=kind, table=[])
        rig.reader.control_write(json.dumps(policy))
        marked = rig.arm_now()
        said.append((marked[0], marked[1] > 0, marked[2]))

    assert said == [(0, False, ""), (2, True, "current"), (0, False, "")]


def test_an_engine_that_does_not_follow_says_so_once_for_each_policy(rig, caplog):
    rig.blocks = Blocks(rig.ring, rig.recorder, "r0", "b0", rig.clock, follows=False)
    for number, arms in enumerate(([{"name": "k0"}], [], [{"name": "current"}]), start=1):
        kind = "blocks" if arms else "table"
        rig.reader.control_write(json.dumps(blocks(policy=number, arms=arms, kind=kind, table=[])))
        for _ in range(3):
            rig.arm_now()
            rig.clock.pass_ms(60_000)
            rig.blocks.turn()

    assert [record.args for record in caplog.records] == [(1,), (2,)]


def an_experiment(rig):
    """Blocks of k = 0 in force."""
    two = [{"name": "k0"}]
    pair = rig.clock.unix_ns() // 1_000_000_000
    rig.reader.control_write(json.dumps(blocks(arms=two, first_pair=pair)))
    assert rig.arm_now()[1:] == (pair, "k0")
    assert rig.blocks.k("sql", 1, 1, 1, 1) == 0


def test_without_a_recorder_there_is_no_experiment_and_no_policy(rig):
    an_experiment(rig)

    rig.recorder.detach("planted")
    rig.blocks.turn()

    assert rig.blocks.k("sql", 1, 1, 1, 1) is None
    rig.reader.control_write(json.dumps(TABLE))
    rig.clock.pass_ms(60_000)
    rig.blocks.turn()
    assert rig.blocks.k("sql", 1, 1, 1, 1) is None


def test_a_forked_child_which_has_no_ring_runs_no_experiment(rig):
    an_experiment(rig)

    rig.ring._release()  # as after a fork
    rig.blocks.turn()

    assert rig.blocks.k("sql", 1, 1, 1, 1) is None


def test_a_policy_nested_without_end_is_refused():
    with pytest.raises(PolicyError):
        Gate.from_policy("[" * 100_000)


def test_after_the_last_pair_the_fallback_holds_whoever_is_left_to_say_so(rig):
    two = [{"name": "k0"}, {"name": "k4"}]
    first = rig.clock.unix_ns() // 2_000_000_000 + 1
    fallback = {"table": [{"class": "sql", "k": 7}], "default_k": 3}
    policy = blocks(arms=two, first_pair=first, last_pair=first + 1, fallback=fallback)
    rig.reader.control_write(json.dumps(policy))
    rig.blocks.turn()
    rig.clock.now_ns += first * 2_000_000_000 - rig.clock.unix_ns()

    ran = []
    for _ in range(6):
        ran.append((rig.arm_now()[:2], rig.blocks.k("sql", 1, 1, 1, 1)))
        rig.clock.pass_ms(1000)

    assert [pair for (_, pair), _ in ran] == [first, first, first + 1, first + 1, 0, 0]
    assert {k for _, k in ran[:4]} == {0, 4}
    assert [marked for marked, _ in ran[4:]] == [(5, 0), (5, 0)]
    assert [k for _, k in ran[4:]] == [7, 7]
    assert rig.blocks.k("chat", 1, 1, 1, 1) == 3


@pytest.mark.parametrize("stepped_ns", [-(10**15), 10**15])
def test_a_wall_clock_that_is_stepped_neither_ends_a_policy_nor_starts_it_again(rig, stepped_ns):
    two = [{"name": "k0"}, {"name": "k4"}]
    first = rig.clock.unix_ns() // 2_000_000_000 + 1
    policy = blocks(arms=two, first_pair=first, last_pair=first, fallback={"default_k": 6})
    rig.reader.control_write(json.dumps(policy))
    rig.blocks.turn()
    rig.clock.now_ns += first * 2_000_000_000 - rig.clock.unix_ns()
    pairs = [rig.arm_now()[1]]

    rig.clock.offset_ns += stepped_ns
    for _ in range(3):
        pairs.append(rig.arm_now()[1])
        rig.clock.pass_ms(1000)
    rig.clock.offset_ns -= stepped_ns
    pairs.append(rig.arm_now()[1])

    assert pairs == [first, first, first, 0, 0]
    assert rig.blocks.k("chat", 1, 1, 1, 1) == 6


def test_a_policy_that_has_ended_before_it_arrives_puts_its_fallback_in_force_at_once(rig):
    policy = blocks(first_pair=1, last_pair=2, fallback={"default_k": 6})
    rig.reader.control_write(json.dumps(policy))

    assert rig.arm_now() == (5, 0, "")
    assert rig.blocks.k("sql", 1, 1, 1, 1) == 6


def test_without_a_fallback_the_policy_s_own_table_holds_at_the_end():
    gate = Gate.from_policy(blocks(last_pair=9))

    assert gate.ended().k("sql", 10, 64, 1, 0) == 4
    assert not gate.ended().arms


def test_an_arm_may_be_a_table_of_its_own():
    arm = {"name": "gate-b", "table": [{"class": "sql", "k": 6}], "default_k": 2}
    gate = Gate.from_policy(TABLE | {"arms": [arm, {"name": "k0"}]})

    assert gate.k("sql", 10, 64, 1, 0, "gate-b") == 6
    assert gate.k("chat", 10, 512, 1, 0, "gate-b") == 2
    assert gate.k("chat", 10, 512, 1, 0) == 3


def test_a_policy_may_detach_the_hook_and_the_engine_goes_on_by_itself(rig):
    rig.reader.control_write(json.dumps(TABLE))
    rig.arm_now()
    rig.reader.control_write(json.dumps(TABLE | {"policy": 6, "detach": True}))

    rig.blocks.turn()
    rig.recorder.round(**a_round())

    assert not rig.recorder.on
    assert rig.blocks.k("sql", 1, 1, 1, 1) is None
    assert "policy 6" in rig.reader.fault_text


NUMBERS = [
    *("policy", "seed", "block_ms", "burn_in_ms", "first_pair", "last_pair", "share", "default_k"),
    *("guardrail.gap_p95_ms", "guardrail.ttft_p95_ms", "guardrail.tokens_per_round"),
    *(f"table.{axis}.{end}" for axis in ("context", "output", "batch", "queue") for end in (0, 1)),
    *("table.k", "arms.k", "arms.default_k", "fallback.default_k"),
]


def with_number(path, value):
    """A policy with a value in one place, and the name that a refusal must say."""
    first, *rest = path.split(".")
    match first, rest:
        case "guardrail" | "fallback", [name]:
            return blocks(**{first: {name: value}}), name
        case "arms", ["default_k"]:
            return blocks(arms=[{"name": "x", "table": [], "default_k": value}]), "default_k"
        case "arms", _:
            return blocks(arms=[{"name": "x", "k": value}, {"name": "k0"}]), "k"
        case "table", [axis, end]:
            limits = [value if int(end) == place else None for place in (0, 1)]
            return blocks(table=[{axis: limits, "k": 1}]), axis
        case "table", _:
            return blocks(table=[{"k": value}]), "k"
    return blocks(**{first: value}), first


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**400), -1, float("inf"), float("nan"), True, "7", [7]],
    ids=["huge", "hugely negative", "negative", "inf", "nan", "true", "text", "list"],
)
@pytest.mark.parametrize("path", NUMBERS)
def test_every_number_of_a_policy_is_bounded_and_refused_by_name(path, value):
    policy, name = with_number(path, value)

    with pytest.raises(PolicyError, match=name) as refused:
        Gate.from_policy(policy)

    assert len(str(refused.value)) < 120


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "9" * 5000, "1e999"])
def test_numbers_that_json_does_not_know_are_refused(word):
    text = json.dumps(TABLE | {"share": 7.5}).replace("7.5", word)

    with pytest.raises(PolicyError):
        Gate.from_policy(text)


@pytest.mark.parametrize(
    "long",
    [
        {"table": [{"class": str(n), "k": 1} for n in range(513)]},
        {"table": [{"class": "sql", "batch": [n, n + 1], "k": 1} for n in range(65)]},
        {"table": [{"batch": [n, n + 1], "k": 1} for n in range(65)]},
        {"arms": [{"name": f"k{n}"} for n in range(33)]},
        {"arms": [{"name": "k1"}, {"name": "k1"}]},
        {"arms": [{"name": "x" * 65, "k": 1}]},
        {"author": "x" * 201},
        {"note": "x" * 2001},
        {"last_pair": 3, "first_pair": 4},
        {"burn_in_ms": 1001},
        {"block_ms": 8 * 86_400_000},
        {"detach": 1},
        {"fallback": []},
        {"guardrail": 3},
    ],
    ids=lambda long: ", ".join(long),
)
def test_what_is_too_long_or_contradicts_itself_is_refused(long):
    with pytest.raises(PolicyError):
        Gate.from_policy(blocks(**long))


def test_a_sequence_is_compared_only_with_cells_that_its_class_can_match():
    cells = [{"class": f"c{n % 50}", "batch": [n, n + 1], "k": n % 9} for n in range(500)]
    gate = Gate.from_policy(TABLE | {"table": cells})

    assert max(len(rows) for rows in gate.rules.by_class.values()) == 10
    assert [gate.k(f"c{n % 50}", 1, 1, n, 1) for n in range(500)] == [n % 9 for n in range(500)]
