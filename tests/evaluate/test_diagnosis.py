"""Each cause, planted alone in a known engine, is named primary; nothing is where nothing is."""

import dataclasses
import json

import pytest
from block_rows import Kind, block, part
from evaluate.reasons import codes, numbers
from planted_rounds import Cohort, Engine, blocks_of, without

from specscope.evaluate.causes.diagnosis import NO_SINGLE_FIX
from specscope.evaluate.causes.search import CAUSES
from specscope.evaluate.costs.machine import machine_of
from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.verdict.decide import decide

H100 = {
    "parameters": 8_030_000_000,
    "active_parameters": 8_030_000_000,
    "bytes_per_weight": 2.0,
    "kv_bytes_per_token": 131072,
    "experts": 0,
    "draft_parameters": 100_000_000,
    "draft_bytes_per_weight": 2.0,
    "gpu_type": "NVIDIA H100 80GB HBM3",
    "tensor_parallel": 1,
}
MOE = H100 | {"experts": 64, "active_parameters": 1_003_750_000}
# Read at peak, the weights of 8 billion parameters take 4.79 ms, a draft's 0.06 ms.
BIG = Engine(step_ms=5.0, draft_ms=0.07, model_bytes=16_500_000_000)
X = Cohort()
GOOD = Cohort("good")
SHORT, LONG = Cohort(bucket="0-1k"), Cohort(context=8000, bucket="4-16k")


def planted(engine, *cohorts, card=None, ks=(0, 4), spoil=lambda rows: rows):
    """The verdict on class `x`, or on its last cohort."""
    times, parts = blocks_of(engine, *(cohorts or (X,)), ks=ks)
    verdicts = decide(spoil(times), parts, machines={"e": machine_of(card)} if card else None)
    mine = [v for v in verdicts if v.segment.class_ == "x"]
    return max(mine, key=lambda v: (v.segment.context or "", len(v.segment.load or "")))


def impossible(rows):
    return [dataclasses.replace(r, verify_us=0.5 * r.verify_us) if r.k else r for r in rows]


def more_kept_than_offered(rows):
    return [dataclasses.replace(r, accepted=r.proposed + 1) if r.k else r for r in rows]


def spoilt_class(rows):
    """Class `x` keeps a fifth of what others do, evenly at all positions."""
    return [slower_by(r, 2.5) if r.k and r.classes == ("x",) else r for r in rows]


def slower_by(row: BlockTime, factor: float) -> BlockTime:
    """The same tokens from more rounds of the same price."""
    more = {
        name: round(getattr(row, name) * factor)
        for name in ("rounds", "request_rounds", "n_q", "n_kv", "proposed", "full_tokens")
    }
    times = {
        name: getattr(row, name) * factor
        for name in ("wall_us", "draft_us", "verify_us", "sample_us", "idle_us")
    }
    accepted = row.emitted - more["request_rounds"]
    return dataclasses.replace(row, **more, **times, accepted=accepted)


PLANTED = {
    "bad_baseline": planted(Engine(draft_ms=0.9), spoil=impossible),
    "engine_fault": planted(Engine(draft_ms=0.9), spoil=more_kept_than_offered),
    "low_acceptance": planted(Engine(keep=0.7, slot_ms=0.002), GOOD, X, spoil=spoilt_class),
    "adapter_mismatch": planted(
        Engine(keep=0.75, draft_ms=0.2), Cohort(kinds={"": 1.0, **dict.fromkeys("abcd", 0.1)})
    ),
    "grammar_mismatch": planted(
        Engine(keep=0.75, draft_ms=0.2),
        Cohort(kinds={"": 1.0, **dict.fromkeys(("guided", "a guided", "b guided"), 0.05)}),
    ),
    "drafter_window": planted(
        Engine(keep=0.7, draft_ms=0.2), SHORT, dataclasses.replace(LONG, kinds={"": 0.1})
    ),
    "draft_mismatch": planted(Engine(draft_ms=0.1), GOOD, Cohort(kinds={"": 0.1})),
    "late_positions": planted(Engine(keep=0.8, late=0.1, draft_ms=0.15, slot_ms=0.02), ks=(0, 8)),
    "draft_cost": planted(Engine(draft_ms=0.9)),
    "draft_placement": planted(dataclasses.replace(BIG, draft_ms=3.0), card=H100),
    "short_output": planted(Engine(catchup_ms=1.2), Cohort(output=6)),
    "idle": planted(Engine(idle_ms=2.5)),
    "host_sync": planted(Engine(idle_ms=2.5), X, Cohort(batch=64)),
    "sampling": planted(Engine(sampling_ms=2.5)),
    "prefill_side_effect": planted(Engine(prefill_ms=60.0)),
    "memory_displacement": planted(Engine(displaced=0.25)),
    "verify_cost": planted(Engine(slot_ms=0.1)),
    "padding": planted(Engine(slot_ms=0.02, pad_to=256)),
    "raggedness": planted(
        Engine(step_ms=0.3, slot_ms=0.01, keep=0.8, draft_ms=0.02, ragged=True), ks=(0, 8)
    ),
    "staircase": planted(Engine(steps={9: 2.5}), ks=(0, 3, 4, 5)),
    "context_cost": planted(Engine(reread_ms=1.2e-4, keep=0.7), SHORT, LONG),
    "expert_union": planted(dataclasses.replace(BIG, slot_ms=0.15, keep=0.4), card=MOE),
    "verify_compute_bound": planted(
        dataclasses.replace(BIG, slot_ms=0.02), Cohort(batch=256), card=H100
    ),
    "overhead_bound": planted(dataclasses.replace(BIG, steps={9: 45.0}), card=H100),
}


def test_a_diagnosis_holds_plain_values_alone():
    verdict = PLANTED["context_cost"]

    plain = json.loads(json.dumps([dataclasses.asdict(d) for d in verdict.diagnoses]))

    assert plain[0]["cause_odds"][0]["cause"] == "context_cost"


def test_every_cause_of_the_table_is_planted():
    assert set(PLANTED) == {cause.code for cause in CAUSES}


@pytest.mark.parametrize("cause", PLANTED)
def test_a_cause_that_is_planted_alone_is_primary(cause):
    verdict = PLANTED[cause]

    assert verdict.primary == cause, verdict.diagnoses
    assert numbers(verdict, "cause")["cause"] == cause


@pytest.mark.parametrize("card", [None, H100, MOE])
def test_where_nothing_is_planted_nothing_is_named(card):
    verdict = planted(BIG, SHORT, LONG, Cohort(batch=64), card=card, ks=(0, 2, 4, 5))

    assert verdict.action == "set_k"
    assert verdict.primary is None
    assert {diagnosis.primary for diagnosis in verdict.diagnoses} == {None}


HARMLESS = {
    "padding": planted(Engine(draft_ms=0.9, slot_ms=0.02, pad_to=41), card=H100),
    "raggedness": planted(Engine(draft_ms=0.9, slot_ms=0.02), card=H100),
    "staircase": planted(Engine(draft_ms=0.9, slot_ms=0.05), ks=(0, 1, 2, 4)),
    "context_cost": planted(Engine(draft_ms=0.9, context_ms=1e-4), SHORT, LONG),
    "expert_union": planted(Engine(draft_ms=0.9), Cohort(batch=32), card=MOE),
    "verify_compute_bound": planted(dataclasses.replace(BIG, draft_ms=3.0), card=H100),
    "overhead_bound": planted(dataclasses.replace(BIG, draft_ms=3.0, slot_ms=1e-4), card=H100),
    "draft_placement": planted(dataclasses.replace(BIG, draft_ms=0.15, step_ms=0.2), card=H100),
    "host_sync": planted(Engine(draft_ms=0.9, idle_ms=0.0), X, Cohort(batch=64)),
    "short_output": planted(Engine(draft_ms=0.9, catchup_ms=1.2), Cohort(output=400)),
    "memory_displacement": planted(Engine(draft_ms=0.9)),
    "prefill_side_effect": planted(Engine(draft_ms=0.9, prefill_ms=0.1), Cohort(output=2000)),
    "adapter_mismatch": planted(Engine(draft_ms=0.9), Cohort(kinds={"": 1.0, "legal": 0.9})),
    "grammar_mismatch": planted(Engine(draft_ms=0.9), Cohort(kinds={"": 1.0, "guided": 0.9})),
    "drafter_window": planted(Engine(draft_ms=0.9), SHORT, LONG),
}


@pytest.mark.parametrize("cause", HARMLESS)
def test_a_cause_is_not_seen_where_physics_says_that_it_is_not_there(cause):
    verdict = HARMLESS[cause]

    named = {diagnosis.primary for diagnosis in verdict.diagnoses} - {None}
    assert named <= {"draft_cost", "draft_placement"} - {cause}
    assert all(cause not in {r.cause for r in d.repairs if r.flips} for d in verdict.diagnoses)


@pytest.mark.parametrize(
    ("column", "cause"),
    [
        ("draft_us", "draft_cost"),
        ("verify_us", "verify_cost"),
        ("idle_us", "idle"),
        ("sample_us", "sampling"),
        ("prefill_us", "prefill_side_effect"),
    ],
)
def test_what_is_not_recorded_is_named_instead_of_guessed(column, cause):
    verdict = planted(Engine(draft_ms=0.9), spoil=lambda rows: without(rows, column))

    unseen = {one.cause: one.needs for one in verdict.diagnoses[0].unseen}
    assert unseen[cause] == (f"round.{column}",)
    assert cause not in {repair.cause for repair in verdict.diagnoses[0].repairs}


def test_without_a_model_card_the_causes_that_need_one_say_so():
    verdict = planted(Engine(draft_ms=0.9))
    partly = planted(Engine(draft_ms=0.9), card=H100 | {"gpu_type": None})

    unseen = {one.cause: one.needs for one in verdict.diagnoses[0].unseen}
    assert unseen["draft_placement"] == (
        "boot.draft_parameters",
        "boot.draft_bytes_per_weight",
        "boot.gpu_type",
    )
    assert "boot.parameters" in unseen["verify_compute_bound"]
    assert "blocks_of_contexts_apart" in unseen["context_cost"]
    unseen = {one.cause: one.needs for one in partly.diagnoses[0].unseen}
    assert unseen["verify_compute_bound"] == ("boot.gpu_type",)


def test_blocks_from_before_a_column_existed_say_which_one_it_is():
    verdict = planted(Engine(draft_ms=0.9), spoil=lambda rows: without(rows, "preempted"))

    unseen = {one.cause: one.needs for one in verdict.diagnoses[0].unseen}
    assert unseen["memory_displacement"] == ("block_time.preempted",)


# --- traces with published arithmetic


def segment(tokens, draft, verify, idle, sample=0.0, name="x", first=1):
    """Blocks of one class with k0 and k4, times in ms a round."""
    times, parts = [], []
    for pair in range(first, first + 20):
        slow = 1 + 0.01 * (pair % 5)
        for k, parts_ms, yields in (
            (0, (0.0, 1.0, 0.0, 0.0), 1.0),
            (4, (draft, verify, idle, sample), tokens),
        ):
            kind = Kind({k: yields}, {k: sum(parts_ms), 0: sum(parts_ms)})
            row = block(name, k, kind, pair, slow, 8, 1000)
            scale = 1e3 * row.rounds * slow
            row = dataclasses.replace(
                row,
                draft_us=scale * parts_ms[0],
                verify_us=scale * parts_ms[1],
                idle_us=scale * parts_ms[2],
                sample_us=scale * parts_ms[3],
            )
            times.append(row)
            parts.append(part(row, name))
    return times, parts


def repaired(verdict):
    return {repair.cause: repair for repair in verdict.diagnoses[0].repairs}


def test_a_free_draft_is_not_ruled_out_for_the_second_trace_beside_too_few_tokens():
    (verdict,) = decide(*segment(1.4, 0.9, 1.2, 0.0))

    found = repaired(verdict)
    acceptance, draft = verdict.cause_odds
    assert verdict.diagnoses[0].speedup == pytest.approx(0.667, abs=2e-3)
    assert found["verify_cost"].speedup == pytest.approx(0.737, abs=2e-3)
    assert found["low_acceptance"].numbers["break_even"] == pytest.approx(2.10, abs=5e-3)
    assert (acceptance.cause, acceptance.odds) == ("low_acceptance", 1.0)
    assert (draft.cause, draft.odds) == ("draft_cost", None)
    assert draft.speedup == pytest.approx(1.167, abs=2e-3)
    assert "boot.draft_parameters" in draft.needs
    assert verdict.primary is None


def test_closing_the_gaps_flips_a_trace_with_gaps():
    (verdict,) = decide(*segment(1.9, 0.3, 1.05, 0.6))

    assert repaired(verdict)["idle"].speedup == pytest.approx(1.407, abs=2e-3)
    assert verdict.diagnoses[0].speedup == pytest.approx(0.974, abs=2e-3)


@pytest.mark.parametrize(
    ("times", "primary"),
    [
        ({"tokens": 1.9, "draft": 1.2, "verify": 1.05, "idle": 0.05}, "draft_cost"),
        ({"tokens": 1.9, "draft": 0.3, "verify": 2.2, "idle": 0.05}, "verify_cost"),
        ({"tokens": 1.9, "draft": 0.3, "verify": 1.05, "idle": 0.9}, "idle"),
        ({"tokens": 1.9, "draft": 0.3, "verify": 1.05, "idle": 0.05, "sample": 0.9}, "sampling"),
    ],
)
def test_a_cost_beside_others_is_primary_where_it_alone_decides(times, primary):
    (verdict,) = decide(*segment(**times))

    assert verdict.action == "disable"
    assert verdict.primary == primary


def test_low_acceptance_is_primary_beside_traffic_where_the_same_draft_pays():
    good = segment(3.6, 0.3, 1.1, 0.05, name="good")
    bad = segment(1.2, 0.3, 1.1, 0.05, name="bad", first=21)

    verdicts = decide(good[0] + bad[0], good[1] + bad[1])

    by_class = {v.segment.class_: v for v in verdicts}
    assert by_class["bad"].primary == "draft_mismatch"
    assert by_class["bad"].diagnoses[0].repairs[0].part == "low_acceptance"
    assert by_class["good"].primary is None


def test_costs_that_only_fall_together_have_no_single_fix():
    (verdict,) = decide(*segment(1.2, 1.0, 2.0, 1.0))

    assert verdict.primary == NO_SINGLE_FIX
    assert "no_single_fix" in codes(verdict)
