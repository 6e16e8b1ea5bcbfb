"""The guardrail lowers k where limits are broken for three minutes, and never raises it."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specscope_agent.guardrail import FIRST_WAIT_S, LONGEST_WAIT_S, Guardrail, Limits
from specscope_hook.errors import PolicyError
from specscope_hook.gate import Gate

LIMITS = {"gap_p95_ms": 50, "ttft_p95_ms": 800, "tokens_per_round": 1.5}
POLICY = json.dumps(
    {
        "policy": 3,
        "kind": "blocks",
        "seed": 1,
        "arms": [{"name": "k0", "k": 0}, {"name": "k4", "k": 4}],
        "block_ms": 1000,
        "share": 0.5,
        "table": [{"class": "sql", "k": 6}],
        "default_k": 2,
        "guardrail": LIMITS,
    }
)


class Clock:
    now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def guardrail(tmp_path, clock):
    guardrail = Guardrail(tmp_path / "guardrail.json", clock)
    guardrail.follow(POLICY)
    return guardrail


def rounds(count=100, wall_us=20_000.0, emitted=3, k=4):
    rows = {"k": k, "batch": 1, "emitted": emitted, "wall_us": wall_us}
    return {"round": pa.table({name: [value] * count for name, value in rows.items()})}


def first_tokens(count, ttft_ms):
    return rounds() | {"request": pa.table({"ttft_ms": [ttft_ms] * count})}


def minutes(guardrail, clock, count, *batches):
    """How often k was lowered over so many minutes, each with these batches."""
    fired = 0
    for _ in range(count):
        for tables in batches:
            guardrail.observe(tables)
        clock.now += 60.0
        fired += guardrail.turn()
    return fired


@pytest.mark.parametrize(
    "broken",
    [rounds(wall_us=90_000.0), rounds(emitted=1), first_tokens(30, 2_000.0)],
    ids=["chunk gaps", "under break-even", "first tokens"],
)
def test_three_bad_minutes_in_a_row_lower_every_k_to_zero(guardrail, clock, broken):
    assert minutes(guardrail, clock, 2, broken) == 0
    assert guardrail.lowered == ""

    assert minutes(guardrail, clock, 1, broken) == 1

    gate = Gate.from_policy(guardrail.lowered)
    assert (gate.k("sql", 10, 10, 1, 0), gate.k("prose", 10, 10, 1, 0)) == (0, 0)
    assert gate.policy == 3
    assert not any(gate.experimental("r", "b", pair) for pair in range(200))


def test_two_bad_minutes_and_a_good_one_are_none(guardrail, clock):
    bad, good = rounds(wall_us=90_000.0), rounds()

    fired = sum(
        minutes(guardrail, clock, 2, bad) + minutes(guardrail, clock, 1, good) for _ in range(5)
    )

    assert fired == 0


def test_a_p95_just_above_its_limit_is_left_to_the_evaluator(guardrail, clock):
    long, short = rounds(8, wall_us=60_000.0), rounds(92)

    assert minutes(guardrail, clock, 10, long, short) == 0


def test_rounds_without_speculation_are_not_its_doing(guardrail, clock):
    assert minutes(guardrail, clock, 10, rounds(wall_us=90_000.0, k=0, emitted=1)) == 0


def test_a_minute_with_hardly_any_traffic_says_nothing(guardrail, clock):
    assert minutes(guardrail, clock, 10, rounds(5, wall_us=90_000.0)) == 0


def test_without_limits_nothing_is_watched(guardrail, clock):
    guardrail.follow(json.dumps({"policy": 4}))

    assert minutes(guardrail, clock, 10, rounds(wall_us=90_000.0, emitted=1)) == 0


def test_the_policy_is_tried_again_after_half_an_hour_then_after_twice_as_long(guardrail, clock):
    bad = rounds(emitted=1)
    waits = []
    for _ in range(8):
        minutes(guardrail, clock, 3, bad)
        assert guardrail.holds
        began = clock.now
        while guardrail.holds:
            clock.now += 60.0
        waits.append(clock.now - began)

    assert waits[:3] == [FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S]
    assert max(waits) == LONGEST_WAIT_S


def test_a_restart_does_not_raise_k(guardrail, clock, tmp_path):
    minutes(guardrail, clock, 3, rounds(emitted=1))

    again = Guardrail(tmp_path / "guardrail.json", clock)
    again.follow(POLICY)

    assert again.lowered == guardrail.lowered != ""


def test_a_new_policy_starts_with_a_clean_slate(guardrail, clock):
    minutes(guardrail, clock, 3, rounds(emitted=1))

    guardrail.follow(POLICY.replace('"policy": 3', '"policy": 4'))

    assert guardrail.lowered == ""


@given(
    table=st.lists(
        st.fixed_dictionaries({"class": st.sampled_from(["sql", "prose"]), "k": st.integers(0, 9)})
    ),
    default=st.integers(0, 9),
    kind=st.sampled_from(["table", "cohort", "blocks"]),
)
def test_it_never_raises_any_k(tmp_path_factory, table, default, kind):
    policy = {"policy": 1, "kind": kind, "table": table, "default_k": default}
    if kind == "blocks":
        policy |= {"arms": [{"name": "k0", "k": 0}], "block_ms": 1000}
    text, clock = json.dumps(policy | {"guardrail": LIMITS}), Clock()
    guardrail = Guardrail(tmp_path_factory.mktemp("g") / "g.json", clock)
    guardrail.follow(text)
    before = Gate.from_policy(text)

    minutes(guardrail, clock, 3, rounds(emitted=1))

    after = Gate.from_policy(guardrail.lowered)
    for class_ in ("sql", "prose", "json"):
        assert after.k(class_, 1, 1, 1, 1) <= before.k(class_, 1, 1, 1, 1)


@pytest.mark.parametrize(
    "limits",
    [
        '{"gap_p95_ms": "soon"}',
        f'{{"gap_p95_ms": 1{"0" * 400}}}',
        "7",
        '{"ttft_p95_ms": -1}',
        '{"tokens_per_round": NaN}',
        '{"tokens_per_round": Infinity}',
        '{"gap_p95_ms": true}',
    ],
)
def test_limits_that_are_no_numbers_are_refused(limits):
    with pytest.raises(PolicyError):
        Limits.of(f'{{"guardrail": {limits}}}')


def test_a_policy_without_limits_has_none():
    assert Limits.of("") == Limits.of('{"guardrail": {"gap_p95_ms": null}}') == Limits()


def test_what_it_held_is_known_again_after_a_restart(guardrail, clock, tmp_path):
    minutes(guardrail, clock, 3, rounds(emitted=1))
    held = guardrail.held

    again = Guardrail(tmp_path / "guardrail.json", clock)
    again.follow(POLICY)

    assert again.held == held
    assert held.policy == 3
    assert held.until - held.fired_at == pytest.approx(FIRST_WAIT_S * 1e9)
    assert json.loads(held.detail)["reason"] == "1.00 tokens per round where 1.5 break even"


def test_what_it_held_under_one_policy_is_not_said_of_another(guardrail, clock):
    minutes(guardrail, clock, 3, rounds(emitted=1))

    guardrail.follow(POLICY.replace('"policy": 3', '"policy": 4'))

    assert guardrail.held is None


class Steps:
    """A wall clock that is put forward and back all the time."""

    def __init__(self, rng):
        self._rng = rng

    def __call__(self):
        return 1_790_000_000.0 + self._rng.uniform(-1e6, 1e6)


def test_a_wall_clock_that_is_stepped_neither_fires_nor_lifts_nor_holds(tmp_path, clock):
    guardrail = Guardrail(tmp_path / "guardrail.json", clock, Steps(random.Random(1)))
    guardrail.follow(POLICY)

    assert minutes(guardrail, clock, 2, rounds(emitted=1)) == 0
    assert minutes(guardrail, clock, 1, rounds(emitted=1)) == 1
    began = clock.now
    while guardrail.holds:
        clock.now += 60.0

    assert clock.now - began == FIRST_WAIT_S


def test_after_a_restart_of_the_machine_it_holds_for_the_whole_wait_again(
    guardrail, clock, tmp_path
):
    minutes(guardrail, clock, 3, rounds(emitted=1))

    clock.now = 5.0
    again = Guardrail(tmp_path / "guardrail.json", clock, machine="another start")
    again.follow(POLICY)
    clock.now += FIRST_WAIT_S - 1

    assert again.holds
    clock.now += 2
    assert not again.holds


@pytest.mark.parametrize("value", ["x", None, [], 10**400])
@pytest.mark.parametrize("name", ["until", "wait_s", "times", "held"])
def test_a_damaged_note_of_what_it_held_is_left(guardrail, clock, tmp_path, name, value):
    minutes(guardrail, clock, 3, rounds(emitted=1))
    path = tmp_path / "guardrail.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))

    again = Guardrail(path, clock)
    again.follow(POLICY)

    assert again.holds in (True, False)
    assert again.turn() is False
