"""Configurations of real vLLM as three sides of one crossover: target-only and a draft model beside
vLLM's own table of draft lengths by batch, and beside n-gram drafts.

The sides take turns on this machine, each through its streams, since two at once would share its
cores. What is shown is that each is named by what it ran, that their pairs are found, that the sign
is right, and that a difference which was not declared is refused by its name.
"""

import json
import time
from dataclasses import replace

import pytest
from vllm_rings import ONE_PROCESS

from specscope.evaluate.experiment.blocks import BlockTime
from specscope.evaluate.verdict.crossover import judge_crossovers
from specscope.evidence.crossovers import crossings
from specscope.gate.swap import Swap, crossover_policy

TABLE = [[1, 2, 3], [3, 8, 1]]
SIDES = {"left": "clean", "right": "k3", "third": "schedule"}
REPLICAS = {"ngram": "third"}  # n-gram drafts stand where the table stood
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
PROMPTS = [[1, 2, 3, 4], [60, 61, 62], [70, 60, 70, 60], [5, 6, 7, 8, 9]]
SWAP = Swap(("left",), ("right",), 1, third=("third",))


@pytest.fixture(scope="module")
def sides(request, vllm_python, models, tmp_path_factory):
    """The Boot and rounds of each side, one after the other, under the crossover's policy."""
    body = crossover_policy([], SWAP, now=time.time_ns(), default_k=3) | {"first_pair": 0}
    drafted = {"method": "draft_model", "model": str(models / "target"),
               "num_speculative_tokens": 3}  # fmt: skip
    specs = {
        "clean": None, "k3": drafted,
        "schedule": drafted | {"num_speculative_tokens_per_batch_size": TABLE}, "ngram": NGRAM,
    }  # fmt: skip
    ran = {}
    for side, name in (SIDES | {"ngram": "ngram"}).items():
        go = one_run(vllm_python, models, tmp_path_factory.mktemp(name))
        job = {"speculative_config": specs[name], "prompts": PROMPTS, "max_tokens": 96, "waves": 6,
               "max_num_seqs": 3,  # so that the last prompt of a wave runs alone
               "temperature": 0.0, "ignore_eos": True}  # fmt: skip
        ran[side] = go(
            job,
            settings=ONE_PROCESS | {"SPECSCOPE_REPLICA": REPLICAS.get(side, side)},
            policy=json.dumps(body),
        )
    return ran, body


def one_run(vllm_python, models, folder):
    """The fixture `run`, for a whole module."""
    from conftest import run as fixture

    return fixture.__wrapped__(vllm_python, models, folder)


def blocks_of(side, got, most=60):
    """Rounds of a side as blocks of equal numbers of rounds, numbered from 0 on every side."""
    own = [one for one in got.rounds if one.k or one.emitted][5:]
    size = max(1, len(own) // most)
    made = []
    for number in range(min(most, len(own) // size)):
        rounds = own[number * size : (number + 1) * size]
        made.append(
            BlockTime(
                epoch=got.boot["epoch"], policy=1, replica=side, boot=got.boot["boot"],
                pair=number, arm="current", requests=4, rounds=len(rounds),
                request_rounds=sum(len(one.k) for one in rounds), classes=("sql",),
                k=max(max(one.k, default=0) for one in rounds),
                wall_us=sum(one.wall_us for one in rounds),
                emitted=sum(sum(one.emitted) for one in rounds),
                proposed=sum(sum(one.k) for one in rounds),
                accepted=sum(sum(one.accepted) for one in rounds),
                first_at=number * 10**9, last_at=number * 10**9 + 9 * 10**8,
            )
        )  # fmt: skip
    return made


def judged(sides, third="third", differs=(), **other):
    """The verdict on all sides. third: the run that stands on the third side, and other: columns of
    its Boot. differs: what was declared to differ."""
    ran, body = sides
    stand = {"left": ran["left"], "right": ran["right"], "third": ran[third]}
    if differs:
        swap = replace(SWAP, differs=differs)
        body = crossover_policy([], swap, now=time.time_ns(), default_k=3) | {"first_pair": 0}
    boots = [
        got.boot | {"replica": side} | (other if side == "third" else {})
        for side, got in stand.items()
    ]
    blocks = [block for side, got in stand.items() for block in blocks_of(side, got)]
    found = crossings(blocks, {1: body}, boots)
    return [one.verdict for one in judge_crossovers(found, closed_loop=True)]


def test_vllms_own_table_is_a_side_beside_one_length_and_target_only(sides):
    (verdict,) = judged(sides)

    lengths = {k for one in sides[0]["third"].rounds for k in one.k}
    assert {arm.arm for arm in verdict.arms} == set(SIDES.values())
    assert lengths == {0, 1, 3} or lengths == {1, 3}
    assert verdict.pairs >= 20
    ratios = {(one.arm, one.baseline): one.value for one in verdict.speedups}
    assert set(ratios) == {("k3", "clean"), ("schedule", "clean"), ("schedule", "k3")}
    # A draft as large as the target cannot pay: whatever drafts is slower than target-only.
    assert ratios["k3", "clean"] < 1.0
    assert ratios["schedule", "clean"] < 1.0
    assert verdict.flags == ("NOT_SWAPPED",)  # the sides were not exchanged


@pytest.mark.parametrize(
    ("column", "value", "part"),
    [("draft", "another", "drafter"), ("engine_version", "0.1", "version")],
)
def test_a_difference_that_was_not_declared_is_refused_by_name(sides, column, value, part):
    verdicts = judged(sides, **{column: value})

    refused = {
        reason.arm for verdict in verdicts for reason in verdict.reasons
        if reason.code == "undeclared"
    }  # fmt: skip
    assert part in refused
    assert all(not verdict.speedups for verdict in verdicts)


def test_the_hook_numbered_the_blocks_of_every_side_and_changed_no_length(sides):
    ran, _ = sides

    for got in ran.values():
        numbered = [one for one in got.rounds if one.policy]
        assert numbered
        assert len({one.pair for one in numbered}) > 1
    assert {k for one in ran["right"].rounds for k in one.k} >= {3}


def test_ngram_drafts_are_a_side_beside_a_draft_model_and_target_only(sides):
    (verdict,) = judged(sides, third="ngram", differs=("drafter",))

    names = {arm.arm for arm in verdict.arms}
    assert len(names) == 3
    assert "clean" in names
    assert all(name == "clean" or name.startswith("k3") for name in names)
    assert verdict.pairs >= 20
    ratios = {(one.arm, one.baseline): one.value for one in verdict.speedups}
    (model,) = [name for name in names if "target" in name]
    assert ratios[model, "clean"] < 1.0  # a draft as large as the target cannot pay


def test_ngram_drafts_beside_a_draft_model_are_refused_unless_declared(sides):
    verdicts = judged(sides, third="ngram")

    refused = {
        reason.arm for verdict in verdicts for reason in verdict.reasons
        if reason.code == "undeclared"
    }  # fmt: skip
    assert "drafter" in refused
    assert all(not verdict.speedups for verdict in verdicts)
