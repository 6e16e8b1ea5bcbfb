"""From block rows to a table: every rule, and what holds a change back."""

import dataclasses

import pytest
from evaluate.block_rows import Kind, rows
from evaluate.reasons import codes
from gate.judged import of_epoch, recommend

from specscope.evaluate.costs.machine import machines_of
from specscope.evaluate.statistics.quantiles import bin_of
from specscope.evaluate.verdict.choice import Rules
from specscope.gate.recommend import last_change
from specscope.gate.rules import HOUR_NS
from specscope.gate.show import recommendation_json, recommendation_lines
from specscope.policy.stored import Change
from specscope.policy.table import Cell, GateTable, State

COST = {0: 1.0, 2: 1.3, 4: 1.6}
WIN = Kind({0: 1.0, 2: 2.2, 4: 3.6}, COST)
SHORT = Kind({0: 1.0, 2: 1.9, 4: 2.0}, COST)
LOSE = Kind({0: 1.0, 2: 1.15, 4: 1.2}, COST)
TIE = Kind({0: 1.0, 2: 1.3, 4: 1.6}, COST)
NOW = 10**18


def advise(kinds, default_k=0, history=(), table=None, decision=None, **kwargs):
    evidence = of_epoch(*rows(kinds, **kwargs))
    current = table or GateTable((), default_k)
    return recommend(evidence, current, history, now=NOW, decision=decision)


def only(found):
    (move,) = found.moves
    return move


@pytest.mark.parametrize(
    ("kind", "old_k", "rule", "new_k"),
    [
        (WIN, 0, "enable", 4),
        (WIN, 2, "raise", 4),
        (WIN, 4, "keep", 4),
        (SHORT, 4, "lower", 2),
        (LOSE, 4, "disable", 0),
        (LOSE, 0, "keep", 0),
        (WIN, 8, "insufficient", 8),
    ],
)
def test_what_a_cell_does_follows_from_what_is_in_force(kind, old_k, rule, new_k):
    move = only(advise({"sql": kind}, default_k=old_k))

    assert (move.rule, move.new_k) == (rule, new_k)
    assert move.changes == (old_k != new_k)


def test_the_cause_of_a_loss_is_looked_for_with_the_machine_as_in_a_report():
    evidence = of_epoch(*rows({"sql": LOSE}))
    card = {"epoch": "e1", "gpu_type": "NVIDIA H100 80GB HBM3", "parameters": 8e9}
    card |= {"bytes_per_weight": 2.0, "kv_bytes_per_token": 131072, "experts": 0}
    card |= {"active_parameters": 8e9, "draft_parameters": 1e8, "draft_bytes_per_weight": 2.0}

    def lacking(machines):
        found = dataclasses.replace(evidence, machines=machines)
        (verdict,) = recommend(found, GateTable((), 4), now=NOW).verdicts
        return {need for d in verdict.diagnoses for one in d.unseen for need in one.needs}

    assert any(need.startswith("boot.") for need in lacking({}))
    assert not any(need.startswith("boot.") for need in lacking(machines_of([card])))


def test_a_tie_changes_nothing():
    move = only(advise({"sql": TIE}, default_k=4, noise=0.005))

    assert (move.rule, move.new_k) == ("no_change", 4)


def test_a_length_in_force_that_loses_is_switched_off_though_another_ties():
    mixed = Kind({0: 1.0, 2: 1.3, 4: 1.4}, COST)

    off = only(advise({"sql": mixed}, default_k=4, noise=0.005))
    tied = only(advise({"sql": mixed}, default_k=2, noise=0.005))

    assert off.place.verdict.action == "disable"
    assert codes(off.place.verdict)[0] == "current_loses"
    assert (off.rule, off.new_k) == ("disable", 0)
    assert (tied.rule, tied.new_k) == ("no_change", 2)


@pytest.mark.parametrize(
    ("allowed", "old_k", "rule", "new_k"),
    [
        (50.0, 4, "keep", 4),
        (25.0, 4, "lower", 2),
        (15.0, 4, "disable", 0),
        (15.0, 2, "disable", 0),
        (15.0, 0, "keep", 0),
        (5.0, 4, "route", 0),
    ],
)
def test_a_gain_does_not_keep_a_length_beyond_what_its_class_is_allowed(
    allowed, old_k, rule, new_k
):
    times, parts = rows({"chat": WIN})
    slow = [
        dataclasses.replace(
            t, tpot_bins=(bin_of({0: 10.0, 2: 20.0, 4: 40.0}[t.k]),), tpot_counts=(t.requests,)
        )
        for t in times
    ]
    decision = Rules(tpot_allowance_ms={"chat": allowed})

    move = only(recommend(of_epoch(slow, parts), GateTable((), old_k), now=NOW, decision=decision))

    assert (move.rule, move.new_k) == (rule, new_k)
    assert move.why != f"k = {old_k} may not lose"


def test_thin_evidence_changes_nothing_and_says_what_is_missing():
    found = advise({"sql": WIN}, pairs=6)

    assert only(found).rule == "insufficient"
    assert "6 of about 20 pairs" in only(found).why
    assert found.new == found.old
    assert recommendation_lines(found)[-1] == "no cell changes"


def test_evidence_that_must_not_be_believed_changes_nothing():
    times, parts = rows({"sql": WIN})
    odd = [dataclasses.replace(t, verify_us=0.5 * t.verify_us) if t.k else t for t in times]

    found = recommend(of_epoch(odd, parts), GateTable(), now=NOW)

    assert only(found).rule == "insufficient"
    assert "INCONSISTENT_BASELINE" in only(found).why


def test_the_new_table_holds_a_cell_a_class_and_keeps_the_rest():
    found = advise({"sql": WIN, "prose": LOSE}, table=GateTable((Cell(3, "chat"),), 4), default_k=4)

    assert found.new.k(State("sql", context=100, output=100, batch=8)) == 4
    assert found.new.k(State("prose", context=100, output=100, batch=8)) == 0
    assert found.new.k(State("prose", context=9000, output=100, batch=8)) == 4
    assert found.new.k(State("chat", context=100, output=100, batch=8)) == 3
    assert [move.rule for move in found.changes] == ["disable"]


def test_speculation_is_not_spread_to_batches_twice_the_measured():
    found = advise({"sql": WIN})

    assert found.new.k(State("sql", context=100, output=100, batch=16)) == 4
    assert found.new.k(State("sql", context=100, output=100, batch=18)) == 0


def by_load(light, heavy, light_k0=8, heavy_k0=64, **kwargs):
    """One class at two loads."""
    a = rows({"sql": light}, requests=light_k0, **kwargs)
    b = rows({"sql": heavy}, requests=heavy_k0, **kwargs)
    shift = [dataclasses.replace(t, pair=t.pair + 1000) for t in b[0]]
    parts = [dataclasses.replace(p, pair=p.pair + 1000) for p in b[1]]
    return of_epoch(a[0] + shift, a[1] + parts)


def test_loads_meet_between_the_batches_that_were_measured():
    found = recommend(by_load(WIN, LOSE), GateTable((), 4), now=NOW)

    assert [move.rule for move in found.moves] == ["keep", "disable"]
    assert found.new.k(State("sql", 100, 100, batch=22)) == 4
    assert found.new.k(State("sql", 100, 100, batch=23)) == 0
    assert found.new.k(State("sql", 100, 100, batch=5000)) == 0
    assert found.flags == ()


def test_drafts_that_grow_with_the_load_are_flagged():
    found = recommend(by_load(SHORT, WIN), GateTable((), 0), now=NOW)

    assert [move.new_k for move in found.moves] == [2, 4]
    assert any("NON_MONOTONE sql: drafts grow" in flag for flag in found.flags)


def test_speculation_that_is_off_between_loads_is_flagged():
    a, b = by_load(WIN, LOSE), by_load(WIN, WIN, heavy_k0=300)
    third = [dataclasses.replace(t, pair=t.pair + 5000) for t in b.blocks if t.requests == 300]
    kept = {t.pair - 5000 for t in third}
    parts = [dataclasses.replace(p, pair=p.pair + 5000) for p in b.parts if p.pair in kept]
    evidence = of_epoch([*a.blocks, *third], [*a.parts, *parts])

    found = recommend(evidence, GateTable((), 0), now=NOW)

    assert [move.new_k for move in found.moves] == [4, 0, 4]
    assert any("on, off, and on again" in flag for flag in found.flags)


def history_with_change(hours_ago):
    return [
        Change(NOW - 1000 * HOUR_NS, GateTable((), 0)),
        Change(NOW - hours_ago * HOUR_NS, GateTable((), 2)),
    ]


@pytest.mark.parametrize(
    ("hours_ago", "rule", "why"),
    [
        (5, "held", "frozen for 24 h"),
        (100, "held", "changes once in 7 days"),
        (200, "held", "new pairs since"),
        (999, "raise", "gains"),
    ],
)
def test_a_cell_rests_after_a_change(hours_ago, rule, why):
    # Blocks of the evidence began 500 hours ago.
    times, parts = rows({"sql": WIN})
    began = NOW - 500 * HOUR_NS
    times = [dataclasses.replace(t, first_at=began, last_at=began + 10**9) for t in times]

    found = recommend(
        of_epoch(times, parts), GateTable((), 2), history_with_change(hours_ago), now=NOW
    )

    assert only(found).rule == rule
    assert why in only(found).why


def test_the_last_change_is_that_of_the_state_not_of_the_table():
    history = [
        Change(1, GateTable((), 0)),
        Change(2, GateTable((Cell(2, "sql"),), 0)),
        Change(3, GateTable((Cell(2, "sql"), Cell(4, "logs")), 0)),
    ]

    assert last_change(history, State("sql")) == 2
    assert last_change(history, State("logs")) == 3
    assert last_change(history, State("prose")) is None


def test_a_class_that_cannot_be_served_well_is_routed():
    times, parts = rows({"chat": WIN})
    slow = [dataclasses.replace(t, tpot_bins=(300,), tpot_counts=(t.requests,)) for t in times]

    found = recommend(
        of_epoch(slow, parts),
        GateTable((), 4),
        now=NOW,
        decision=Rules(tpot_allowance_ms={"chat": 50.0}),
    )

    assert only(found).rule == "route"
    assert found.routes == ["chat"]
    assert found.new.k(State("chat", 100, 100, batch=8)) == 0


def test_only_the_newest_epoch_counts_and_the_others_are_named():
    times, parts = rows({"sql": WIN})
    old = [dataclasses.replace(t, epoch="e0", last_at=0, pair=t.pair + 500) for t in times]

    found = recommend(of_epoch([*times, *old], parts), GateTable(), now=NOW)

    assert found.epoch == "e1"
    assert found.notes[0] == "epoch e0 was left out"
    assert only(found).place.verdict.pairs == 20


def test_nothing_ran_nothing_is_recommended():
    found = recommend(of_epoch([], []), GateTable((), 4), now=NOW)

    assert found.moves == ()
    assert found.new == GateTable((), 4)
    assert "there is no recommendation" in recommendation_lines(found)[0]


def test_a_recommendation_as_json_is_a_table_again():
    found = advise({"sql": WIN, "prose": LOSE}, default_k=4)

    plain = recommendation_json(found)

    assert plain["schema"] == "specscope.gate/1"
    assert len(plain["moves"]) == 2
    assert plain["moves"][0]["rule"] in ("disable", "keep")
    assert plain["table"] == found.new.as_json()["table"]


def test_each_kind_of_claim_has_its_error_rate_however_often_it_is_looked_at():
    evidence = of_epoch(*rows({"sql": WIN}, pairs=24))

    def raised(often):
        decision = Rules(looked_at_often=often)
        found = recommend(evidence, GateTable((), 2), now=NOW, decision=decision)
        (verdict,) = found.verdicts
        return only(found).evidence, verdict.speedups[0]

    (once, first), (always, second) = raised(False), raised(True)
    assert (once.arm, once.baseline, once.value) == ("k4", "k2", always.value)
    # The one comparison between lengths, and the first of two with target-only by Holm.
    assert (once.level, first.level) == (always.level, second.level) == (0.95, 0.975)
    assert always.low < once.low  # evidence that is read while it grows


@pytest.mark.parametrize(("gain", "rule"), [(1.025, "no_change"), (1.035, "enable")])
def test_a_longer_draft_must_gain_three_percent_beyond_doubt(gain, rule):
    kind = Kind({0: 1.0, 4: 1.6 * gain}, {0: 1.0, 4: 1.6})

    move = only(advise({"sql": kind}, noise=0.001, tokens_each=100_000))

    assert move.place.verdict.action == "set_k"  # more than the 2 % that matter
    assert 1.0 < move.evidence.low < gain < move.evidence.high
    assert move.rule == rule
