"""The proposed table, on four engines whose truth is known, and what the command says of it."""

from dataclasses import replace

import numpy as np
import pytest
from gate.four_engines import (
    CLASSES,
    COMPUTE,
    PACKED,
    PADDED,
    SWITCHES,
    WAITING,
    alone,
    experiments,
    throughput,
)
from gate.proposal_campaign import FIRST, called_better, lengths_of, reach

from specscope.evaluate.proposal import ranking
from specscope.evaluate.proposal.ranking import OTHERS, propose
from specscope.evidence.mixed import MixedRounds
from specscope.gate.propose import composition, proposal_json, proposal_lines, rank
from specscope.policy.table import GateTable, State

OFF = GateTable((), 0)
UNIFORM = {name: FIRST[name] for name in ("k0", "k2", "k4")}


@pytest.fixture(scope="module")
def packed():
    return experiments(PACKED, FIRST, 6, 1, seed=1)[0]


@pytest.fixture(scope="module")
def padded():
    return experiments(PADDED, FIRST, 6, 1, seed=1)[0]


@pytest.fixture(scope="module")
def uniform():
    return experiments(PACKED, UNIFORM, 6, 1, seed=2)[0]


@pytest.mark.parametrize("engine", [PACKED, PADDED, WAITING, COMPUTE], ids=lambda e: e.name)
def test_a_proposed_table_is_near_the_best_there_is(engine):
    found = reach(engine, runs=3, seed=1, rows=150_000)

    assert np.mean(found.reached) > 0.97
    assert min(found.reached) > 0.95


@pytest.mark.parametrize("engine", [PADDED, WAITING], ids=lambda e: e.name)
def test_a_gate_whose_sign_is_wrong_from_classes_alone_is_not_proposed(engine):
    gate, promised = alone(engine)
    singles = throughput(engine, SWITCHES, 40_000)
    (true,) = throughput(engine, np.array([gate]), 40_000)
    assert promised > 1.05
    assert true < 0.97 * singles.max()
    (records,) = experiments(engine, FIRST, 6, 1, seed=3)
    proposal = propose(records.rounds, records.parts)

    model = ranking.Model.of(records.rounds, records.parts)
    predicted = model.throughput(np.array([gate, [proposal.single] * 4]))

    assert lengths_of(proposal) != tuple(gate)
    assert predicted[0] < predicted[1]
    assert called_better(engine, tuple(map(int, gate)), int(singles.argmax()), 2, 4, (20,)) == 0


def test_a_table_as_good_as_the_best_switch_is_called_better_by_nobody():
    assert called_better(PACKED, (1, 1, 1, 1), 1, runs=6, seed=5, looks=(20, 30)) == 0


def test_a_table_that_is_better_is_called_so():
    assert called_better(PACKED, (1, 3, 0, 3), 1, runs=3, seed=6, looks=(20, 30)) == 3


def test_only_rounds_of_unequal_drafts_tell_how_an_engine_composes_them(packed, padded, uniform):
    proposals = [propose(one.rounds, one.parts) for one in (packed, padded, uniform)]

    assert [one.padding for one in proposals] == [0.0, 1.0, None]
    assert proposals[0].if_padded is proposals[1].if_padded is None
    assert proposals[2].if_padded < 0.85 < 1.0 < proposals[2].gain.value
    assert [composition(one).split()[0].rstrip(",") for one in proposals] == [
        "packed", "padded", "unknown",
    ]  # fmt: skip


def test_a_composition_that_the_pairs_do_not_settle_is_called_unsettled(packed):
    proposal = propose(packed.rounds, packed.parts)

    assert proposal.padding_range is not None
    for ends, word in [((0.0, 0.25), "packed"), ((0.75, 1.0), "padded"), ((0.5, 0.5), "partly"),
                       ((0.0, 1.0), "not"), ((0.0, 0.5), "not")]:  # fmt: skip
        one = replace(proposal, padding_range=ends)
        assert composition(one).split()[0].rstrip(",") == word


def test_composition_is_not_settled_where_one_pair_alone_says_otherwise(packed, padded):
    """Rounds of one kind of engine in some pairs, of the other in the rest."""
    rounds = [
        row for one, odd in ((packed, 0), (padded, 1)) for row in one.rounds if row.pair % 2 == odd
    ]
    parts = [
        row for one, odd in ((packed, 0), (padded, 1)) for row in one.parts if row.pair % 2 == odd
    ]

    low, high = propose(rounds, parts).padding_range

    assert high - low >= 0.5


def test_too_few_pairs_are_not_ranked(packed):
    few = replace(
        packed,
        rounds=[row for row in packed.rounds if row.pair <= 3],
        parts=[row for row in packed.parts if row.pair <= 3],
    )

    assert ranked(packed) is not None
    assert ranked(few) is None


def ends(rows, padded):
    """Uniform drafts whose last rounds are cut in one row of four by a token."""
    cut = [replace(r, rounds=max(1, r.rounds // 4), n_q=r.n_q - r.batch // 4) for r in rows if r.k]
    return [*rows, *(replace(r, padded_tokens=padded(r) * r.rounds) for r in cut)]


@pytest.mark.parametrize(
    ("padded", "padding"),
    [(lambda r: 7 + r.short, 1.0), (lambda r: 7, 0.0), (None, None)],
    ids=["short drafts", "sizes of graphs", "nothing"],
)
def test_where_times_cannot_tell_the_count_of_padded_tokens_does(uniform, padded, padding):
    count = padded or (lambda r: 0)
    rounds = ends([replace(r, padded_tokens=count(r) * r.rounds) for r in uniform.rounds], count)

    proposal = propose(rounds, uniform.parts)

    assert (proposal.padding, proposal.told) == (
        None if padding is None else pytest.approx(padding, abs=1e-6),
        padding is not None,
    )


def test_a_count_of_padded_tokens_that_cost_nothing_is_not_believed(packed):
    rounds = [replace(row, padded_tokens=row.short * row.rounds) for row in packed.rounds]

    proposal = propose(rounds, packed.parts)

    assert (proposal.padding, proposal.told) == (0.0, False)


def test_parts_of_a_round_need_not_be_timed():
    (whole,) = experiments(PACKED, FIRST, 6, 1, seed=1, parts_timed=False)
    proposal = propose(whole.rounds, whole.parts)

    assert proposal.gain.value > 1.03
    assert proposal.padding <= 0.25


def test_few_pairs_give_no_interval(packed):
    two = [[row for row in rows if row.pair <= 2] for rows in (packed.rounds, packed.parts)]

    gain = propose(*two).gain

    assert (gain.low, gain.high) == (None, None)


def test_a_speed_that_a_pair_shares_changes_nothing(packed):
    slow = [
        replace(
            row, wall_us=3 * row.wall_us, draft_us=3 * row.draft_us, verify_us=3 * row.verify_us
        )
        if row.pair == 2
        else row
        for row in packed.rounds
    ]

    before, after = (propose(rows, packed.parts) for rows in (packed.rounds, slow))

    assert after.lengths == before.lengths
    assert after.gain.value == pytest.approx(before.gain.value, abs=2e-3)


def test_small_classes_share_a_length_if_there_are_too_many_tables(packed, monkeypatch):
    monkeypatch.setattr(ranking, "MOST_TABLES", 5**3)
    rare = [
        replace(part, class_=f"rare {number}", request_rounds=1, emitted=1)
        for part in packed.parts[:1]
        for number in range(3)
    ]

    proposal = propose(packed.rounds, [*packed.parts, *rare])

    assert proposal.tables == 5**3
    assert OTHERS not in proposal.lengths
    assert len(proposal.lengths) == 2


@pytest.mark.parametrize("kept", [("k0",), ("k0", "k2")])
def test_there_is_nothing_to_rank_without_two_classes_and_a_draft(packed, kept):
    only = [part for part in packed.parts if part.class_ == "json" and part.arm in kept]

    with pytest.raises(ValueError, match="two classes"):
        propose(packed.rounds, only)
    with pytest.raises(ValueError, match="no rounds"):
        propose([], packed.parts)


def ranked(records, in_force=OFF):
    return rank(MixedRounds("e", tuple(records.rounds), tuple(records.parts)), in_force)


def test_the_next_step_is_the_experiment_that_decides(packed, tmp_path):
    file = tmp_path / "proposed.json"
    proposed = ranked(packed)

    assert proposed.worth
    assert proposed.arms(file) == ("k0", f"k{proposed.proposal.single}", str(file))
    lines = proposal_lines(proposed, file, written=True)
    assert lines[-1].startswith(
        f"the deciding experiment: specscope gate calibrate --arms {','.join(proposed.arms(file))} "
    )
    plain = proposal_json(proposed, file)
    assert plain["proposal"]["grade"] == "modelled"
    assert {name: proposed.table.k(State(name)) for name in CLASSES} == proposed.proposal.lengths


def test_the_arm_in_force_runs_beside_the_table(packed, tmp_path):
    by_class = GateTable(ranked(packed).table.cells[:1], 0)

    assert ranked(packed, by_class).rivals[-1] == "current"
    assert ranked(packed, GateTable((), 4)).rivals[-1] == "k4"


def test_a_table_that_is_in_force_or_gains_nothing_is_not_worth_an_experiment(packed, padded):
    in_force = ranked(packed, ranked(packed).table)
    nothing = ranked(padded)

    for proposed in (in_force, nothing):
        assert not proposed.worth
        assert "proposed.json" not in proposed.arms("proposed.json")


def test_rounds_without_a_draft_rank_nothing(packed):
    off = replace(packed, rounds=[row for row in packed.rounds if row.k == 0])

    assert ranked(off) is None
    assert ranked(replace(packed, rounds=[])) is None
