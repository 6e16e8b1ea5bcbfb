"""Each limit of the causes of loss, from both sides, and the sums behind them by hand."""

from dataclasses import replace

import numpy as np
import pytest
from planted_rounds import Cohort, Engine, blocks_of, one_block

from specscope.evaluate.causes import acceptance, draft, serving, verify
from specscope.evaluate.causes.cause import Cause, Missing, Need, Seen
from specscope.evaluate.causes.diagnosis import NO_SINGLE_FIX, diagnose
from specscope.evaluate.causes.draws import Draws
from specscope.evaluate.causes.epoch_traffic import EpochTraffic, Past
from specscope.evaluate.causes.facts import gather
from specscope.evaluate.causes.odds import odds_of
from specscope.evaluate.costs.machine import UNKNOWN, machine_of
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.experiment.summary import summarise
from specscope.evaluate.verdict.decide import decide

LOSING = Engine(keep=0.01)  # 1 / 1.24 of target-only's speed
CARD = {"draft_parameters": 1e8, "draft_bytes_per_weight": 2.0, "gpu_type": "NVIDIA H100 80GB HBM3"}


def facts_of(
    engine=LOSING, *cohorts, pairs=20, past=None, card=None, block=None, part=None, noise=None
):
    """Facts of k4 beside k0, alike in every pair; of the last cohort, with all of them around."""
    made = [
        one_block(engine, cohort, k, 1 + place * pairs + pair, 1.0)
        for place, cohort in enumerate(cohorts or (Cohort(),))
        for pair in range(pairs)
        for k in (0, 4)
    ]
    blocks = [block(b) if block and b.k else b for b, _ in made]
    if noise:
        random = np.random.default_rng(noise)
        blocks = [replace(b, wall_us=b.wall_us * random.lognormal(0, 0.1)) for b in blocks]
    parts = [part(p) if part and p.k else p for _, p in made]
    everything = pairs_of(blocks, [p for p in parts if p is not None])
    around = EpochTraffic()
    groups = [
        [p for p in everything if (p.key[4] - 1) // pairs == n] for n in range(len(cohorts) or 1)
    ]
    for group in groups:
        around.add(group[0].segment, group, [summarise(group, arm) for arm in ("k0", "k4")])
    arms = [summarise(groups[-1], arm) for arm in ("k0", "k4")]
    return gather(
        groups[-1][0].segment,
        groups[-1],
        arms[1],
        arms,
        arms[0],
        objective="throughput",
        flags=(),
        epoch_traffic=around,
        past=past,
        machine=machine_of(card) if card else UNKNOWN,
    )


FACTS = facts_of()
TOTAL = FACTS.arm_cost.total[0]
LOST = -np.log(FACTS.speedup[0])
DRAW = np.arange(len(FACTS.speedup)) - 1.0  # of a draw; -1 is the evidence as it came


def saves(share, draws=1.0, first=0.0):
    """A look that saves a share of the time, in a share of the draws from `first` on."""
    count = len(DRAW) - 1
    there = (DRAW < 0) | ((first * count <= DRAW) & ((first + draws) * count > DRAW))
    return lambda facts: Seen(np.where(there, share * facts.arm_cost.total, 0.0))


def diagnosis(facts=FACTS, **looks):
    """Of causes by name; `a_b` is a cause b behind the part a."""
    return diagnose(facts, [Cause(name, name.split("_")[0], look) for name, look in looks.items()])


def standing(**looks):
    return {one.cause: one.odds for one in diagnosis(**looks).cause_odds}


# --- which cause stands


def test_a_cause_with_a_twentieth_of_the_draws_is_a_rival():
    assert standing(a=saves(0.5, 0.85), b=saves(0.4)) == pytest.approx({"a": 0.85, "b": 0.15})
    three = {"a": saves(0.6, 0.8), "b": saves(0.5, 0.96), "c": saves(0.4)}
    assert standing(**three) == pytest.approx({"a": 0.8, "b": 0.16})
    three["b"] = saves(0.5, 0.94)
    assert standing(**three) == pytest.approx({"a": 0.8, "b": 0.14, "c": 0.06})


def test_no_single_repair_is_a_rival_from_a_twentieth_of_the_draws():
    assert standing(a=saves(0.5, 0.94)) == pytest.approx({"a": 0.94})
    assert diagnosis(a=saves(0.5, 0.86)).primary is None
    assert standing(a=saves(0.5, 0.86)) == pytest.approx({"a": 0.86, NO_SINGLE_FIX: 0.14})


@pytest.mark.parametrize(("draws", "open_"), [(9, False), (12, True)])
def test_a_part_is_open_if_it_may_be_the_largest_in_over_a_tenth_of_the_draws(draws, open_):
    gains = np.tile([[0.5], [0.0]], 101)
    most = gains.copy()
    most[1, 1 : 1 + draws] = 0.6

    assert odds_of(gains, most, np.full(101, 0.2)).open_ == (False, open_)


@pytest.mark.parametrize(("pairs", "told"), [(4, False), (5, True)])
def test_causes_are_told_from_five_pairs_on(pairs, told):
    (verdict,) = decide(*blocks_of(Engine(draft_ms=0.9), Cohort(), pairs=pairs))

    (found,) = verdict.diagnoses
    assert found.speedup < 1.0
    assert [one.cause for one in found.cause_odds] == (["draft_cost"] if told else [])


def test_an_arm_that_does_not_lose_has_no_causes_though_some_draws_of_it_do():
    facts = facts_of(Engine(keep=0.01, draft_ms=0.0, idle_ms=0.0), noise=1)
    found = diagnosis(facts, a=saves(0.5))

    assert 1.0 < facts.speedup[0] < 1.1
    assert 0.05 < np.mean(facts.speedup[1:] < 1.0) < 0.95
    assert (found.primary, found.cause_odds) == (None, ())
    assert [repair.flips for repair in found.repairs] == [False]


@pytest.mark.parametrize(("share", "named"), [(0.24, "a"), (0.26, "a_b")])
def test_a_cause_is_named_for_a_part_of_which_it_explains_half(share, named):
    assert diagnosis(a=saves(0.5), a_b=saves(share)).primary == named


@pytest.mark.parametrize(("draws", "named"), [(0.88, "a"), (0.92, "a_b")])
def test_a_cause_is_named_for_a_part_that_it_explains_in_nine_draws_of_ten(draws, named):
    assert diagnosis(a=saves(0.5), a_b=saves(0.5, draws)).primary == named


def test_a_draw_counts_for_the_first_cause_of_the_table_that_explains_the_part():
    behind = {"a_b": saves(0.5, 0.5), "a_c": saves(0.5, 0.95)}

    assert diagnosis(a=saves(0.5), **behind).primary == "a"
    assert diagnosis(a=saves(0.5), a_c=behind["a_c"]).primary == "a_c"


def test_a_part_that_only_a_cause_behind_it_shows_is_as_large_as_that_cause():
    unseen = {"a": lambda facts: Missing(("round.a_us",)), "a_c": saves(0.5)}

    found = diagnosis(**unseen, b=saves(0.3))

    assert found.primary == "a_c"
    assert found.cause_odds[0].speedup == pytest.approx(2.0 * FACTS.speedup[0])
    assert [one.cause for one in found.unseen] == ["a"]


def test_a_repair_has_the_middle_95_percent_of_the_draws():
    ramp = np.where(DRAW < 0, 0.3, 0.5 * DRAW / DRAW[-1])
    (repair,) = diagnosis(a=lambda facts: Seen(ramp * facts.arm_cost.total)).repairs

    speedup = FACTS.speedup[0]
    assert repair.speedup == pytest.approx(speedup / 0.7)
    assert repair.low == pytest.approx(speedup / (1 - 0.025 * 0.5), rel=1e-3)
    assert repair.high == pytest.approx(speedup / (1 - 0.975 * 0.5), rel=1e-3)
    assert repair.flips


def test_what_saves_a_hundredth_has_a_line_and_what_saves_nothing_has_none():
    at_most = np.full(len(DRAW), 0.1 * TOTAL)
    found = diagnosis(
        a=saves(0.01), b=saves(0.0), c=lambda facts: Seen(facts.nothing, at_most=at_most)
    )

    assert [repair.cause for repair in found.repairs] == ["a", "c"]


def test_draws_are_400_and_pairs_stand_alone_up_to_200():
    weights, joined = Draws(200).sums(np.eye(200)), Draws(400).sums(np.eye(400))

    assert len(weights) == 401
    assert abs(np.corrcoef(weights[1:, 0], weights[1:, 1])[0, 1]) < 0.2
    assert (joined[:, 0] == joined[:, 1]).all()
    assert not (joined[:, 1] == joined[:, 2]).all()


# --- references of the causes


def test_a_draft_is_healthy_at_an_eighth_of_a_step_or_three_floors_of_its_device():
    engine = Engine(step_ms=5.0, draft_ms=0.9)
    plain, known = facts_of(engine), facts_of(engine, card=CARD)
    floor_ms = 1e3 * 2e8 / 3.35e12  # weights of 0.2 GB at 3.35 TB/s

    found = draft.draft_cost(plain)
    assert found.saved / plain.arm_cost["draft"] == pytest.approx(1 - 5.02 / 8 / 0.9, rel=1e-3)
    assert found.at_most == pytest.approx(plain.arm_cost["draft"])
    assert found.needs == (
        "boot.draft_parameters",
        "boot.draft_bytes_per_weight",
        "boot.gpu_type",
    )
    found = draft.draft_cost(known)
    assert found.saved / known.arm_cost["draft"] == pytest.approx(1 - 3 * floor_ms / 0.9, rel=1e-3)
    assert (found.at_most, found.needs) == (None, ())


@pytest.mark.parametrize(("floors", "there"), [(2.9, False), (3.1, True)])
def test_a_draft_waits_from_three_floors_of_its_device_on(floors, there):
    facts = facts_of(Engine(step_ms=5.0, draft_ms=floors * 2e2 / 3.35e3), card=CARD)
    found = draft.draft_placement(facts)

    assert found.numbers["floors"] == pytest.approx(floors, rel=1e-3)
    assert (found.saved > 0).all() == there


@pytest.mark.parametrize(("share", "saved"), [(0.045, 0.0), (0.055, 0.055)])
def test_the_start_of_a_draft_counts_from_a_twentieth_of_the_time(share, saved):
    facts = facts_of(block=lambda b: replace(b, catchup_us=share * b.wall_us))

    assert draft.short_output(facts).saved == pytest.approx(saved * TOTAL)


def test_a_better_draft_avoids_half_of_the_refusals():
    whole = facts_of(Engine(keep=0.4))
    bare = facts_of(Engine(keep=0.4), part=lambda part: None)
    tokens = 1 + 0.4 + 0.4**2 + 0.4**3 + 0.4**4

    numbers = acceptance.low_acceptance(bare).numbers
    assert numbers["tokens"] == pytest.approx(tokens, rel=1e-3)
    assert numbers["reach"] == pytest.approx(tokens + 0.5 * (5 - tokens), rel=1e-3)
    numbers = acceptance.low_acceptance(whole).numbers
    assert numbers["reach"] == pytest.approx(1 + 0.7 + 0.7**2 + 0.7**3 + 0.7**4, rel=2e-2)


def test_a_class_is_held_to_its_break_even_within_reach_and_to_its_past_beyond():
    engine = Engine(keep=0.4, draft_ms=0.3)
    facts, low, high = (
        facts_of(engine, past=past) for past in (None, Past(1.2, 0.5), Past(3.5, 0.5))
    )
    price = facts.arm_cost.total[0] * facts.tokens[0]  # of a round, prompts too
    prompts = facts.prefill[0]
    even = (price - prompts * facts.tokens[0]) / (facts.base_cost.total[0] - prompts)

    found = acceptance.low_acceptance(facts)
    assert found.numbers["break_even"] == pytest.approx(even)
    assert found.numbers["tokens"] < even < found.numbers["reach"]
    assert facts.arm_cost.total[0] - found.saved[0] == pytest.approx(facts.base_cost.total[0])
    assert acceptance.low_acceptance(low).saved == pytest.approx(found.saved)
    decode = facts.arm_cost.total[0] - prompts
    assert acceptance.low_acceptance(high).saved == pytest.approx(
        decode * (1 - facts.tokens[0] / 3.5)
    )
    assert acceptance.low_acceptance(high).numbers["past"] == 3.5


@pytest.mark.parametrize(
    ("first", "past", "there"),
    [(0.09, None, True), (0.11, None, False), (0.24, 0.5, True), (0.26, 0.5, False)],
)
def test_a_draft_does_not_match_below_a_tenth_or_half_of_its_past(first, past, there):
    facts = facts_of(
        Engine(keep=0.01, draft_ms=0.3),
        past=Past(3.0, past) if past else None,
        part=lambda p: replace(
            p, tested=(1000,) * 4, kept=(round(1000 * first), *(round(1000 * first / 4),) * 3)
        ),
    )

    assert (acceptance.draft_mismatch(facts).saved > 0).all() == there


@pytest.mark.parametrize(
    ("kept", "tested", "knee"), [(440, 1000, 2), (560, 1000, None), (0, 3, 2), (0, 2, None)]
)
def test_acceptance_collapses_at_half_of_the_mean_before_and_50_tested_rounds(kept, tested, knee):
    """20 blocks; positions before the third are kept always."""
    facts = facts_of(
        part=lambda p: replace(
            p, tested=(1000, 1000, tested, 1), kept=(1000, 1000, min(kept, tested), 1)
        )
    )

    found = acceptance.late_positions(facts)
    assert (found and found.numbers["k"]) == knee


@pytest.mark.parametrize(("refused", "there"), [(0.09, False), (0.11, True)])
def test_a_grammar_refuses_from_a_tenth_of_the_proposals_on(refused, there):
    facts = facts_of(LOSING, Cohort(kinds={"guided": 1.0}, refused=refused))

    assert (acceptance.grammar_mismatch(facts).saved > 0).all() == there


@pytest.mark.parametrize(("keep", "odd"), [(0.62, False), (0.58, True)])
@pytest.mark.parametrize(
    ("kind", "look"),
    [("legal", acceptance.adapter_mismatch), ("guided", acceptance.grammar_mismatch)],
)
def test_a_kind_is_odd_below_three_fifths_of_the_best(keep, odd, kind, look):
    found = look(facts_of(Engine(keep=0.7), Cohort(kinds={"": 1.0, kind: keep})))

    assert (found is not None) is odd
    if found:
        assert found.numbers["best_first"] == pytest.approx(0.7, rel=1e-2)
        assert (found.saved > 0).all()


@pytest.mark.parametrize(("keep", "there"), [(0.52, False), (0.48, True)])
def test_a_window_ends_where_half_of_the_first_positions_is_lost(keep, there):
    long = Cohort(context=8000, bucket="4-16k", kinds={"": keep})
    found = acceptance.drafter_window(facts_of(Engine(keep=0.7), Cohort(), long))

    assert (found is not None) is there
    assert acceptance.drafter_window(FACTS) == Missing((Need.CONTEXTS_OF_CLASS,))


@pytest.mark.parametrize(("share", "there"), [(0.14, False), (0.16, True)])
def test_padding_counts_above_15_percent_of_the_positions(share, there):
    facts = facts_of(
        Engine(slot_ms=0.02), block=lambda b: replace(b, padded_tokens=round(share * b.n_q))
    )

    found = verify.padding(facts)
    assert found.numbers["computed"] == pytest.approx(1 + share, rel=1e-3)
    assert (found.saved > 0).all() == there


@pytest.mark.parametrize(("share", "there"), [(0.045, False), (0.055, True)])
def test_raggedness_counts_above_5_percent_of_the_positions(share, there):
    ragged = share / (1 - share)
    facts = facts_of(
        Engine(slot_ms=0.02),
        block=lambda b: replace(
            b,
            padded_tokens=round(ragged * b.n_q),
            full_tokens=b.n_q + round(ragged * b.n_q),
        ),
    )

    found = verify.raggedness(facts)
    assert found.numbers["share"] == pytest.approx(share, rel=1e-2)
    assert (found.saved > 0).all() == there


@pytest.mark.parametrize(("more", "there"), [(1.08, False), (1.12, True)])
def test_prompts_count_from_a_tenth_more_on(more, there):
    facts = facts_of(
        block=lambda b: replace(b, prefill_us=more * 800.0, emitted=3200),
    )

    found = serving.prefill_side_effect(facts)
    assert found.numbers["own_ms"] / found.numbers["target_ms"] == pytest.approx(more, rel=1e-3)
    assert (found.saved > 0).all() == there


@pytest.mark.parametrize(("rounds", "known"), [(99, False), (100, True)])
def test_the_past_of_a_class_takes_a_hundred_request_rounds(rounds, known):
    around = EpochTraffic()
    around.add(FACTS.segment, [], [replace(FACTS.arm, request_rounds=rounds, emitted=2 * rounds)])

    past = around.past(FACTS.segment, "k4")
    assert (past is not None) is known
    assert past is None or past.tokens == 2.0


def test_time_in_no_known_part_is_the_most_that_an_unknown_one_can_hold():
    """k4 has 1.2 ms in idle and 0.3 in no part for a round; target-only has 0.1 in no part."""
    facts = facts_of(Engine(keep=0.01, idle_ms=1.2))
    own, target = (
        replace(cost, total=cost.total + more / per_ms)
        for cost, more, per_ms in (
            (facts.arm_cost, 0.3, facts.arm_totals.emitted / facts.arm_totals.rounds),
            (facts.base_cost, 0.1, facts.base_totals.emitted / facts.base_totals.rounds),
        )
    )
    facts = replace(facts, arm_cost=own, base_cost=target)
    untimed = replace(facts, arm_cost=replace(own, parts={**own.parts, "idle": None}))

    a_round = facts.arm_totals.emitted[0] / facts.arm_totals.rounds[0]
    assert facts.unaccounted * a_round == pytest.approx(0.2, rel=1e-6)
    assert untimed.hidden("idle") * a_round == pytest.approx(1.4, rel=1e-6)
    assert facts.hidden("idle") * a_round == pytest.approx(1.2, rel=1e-6)
    assert facts.excess("idle") * a_round == pytest.approx(1.2, rel=1e-6)
