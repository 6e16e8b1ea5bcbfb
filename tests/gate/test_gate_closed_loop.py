"""From experiments to a table, and the table back into an engine whose costs are known."""

import math

import numpy as np
import pytest
from gate.judged import of_epoch, recommend
from gate.mixed_engine import Traffic, experiment, serve

from specscope.evaluate.costs.steptime import fit_blocks
from specscope.policy.table import GateTable, State

ARMS = (0, 1, 3, 5)
SURE = Traffic("sql", 18, 2)
VAGUE = Traffic("prose", 3, 7)
NOW = 10**18


def verdict_of(traffic, requests, seed, arms):
    evidence = of_epoch(*experiment(traffic, requests, arms, 12, seed, noise=0.02))
    (move,) = recommend(evidence, GateTable((), 5), now=NOW).moves
    return move.place.verdict


def truth(traffic, requests, arms):
    """Throughput of each arm over target-only, from many cohorts without noise or drift."""
    blocks, _ = experiment(traffic, requests, arms, 30, 999, noise=0.0, drift=0.0)
    rate = {
        k: sum(b.emitted for b in blocks if b.k == k) / sum(b.wall_us for b in blocks if b.k == k)
        for k in arms
    }
    return {k: rate[k] / rate[0] for k in arms}


@pytest.mark.parametrize(
    ("traffic", "requests", "arms"),
    [
        (SURE, 4, ARMS),  # wins, longest draft
        (SURE, 96, ARMS),  # wins at load, too
        (VAGUE, 4, ARMS),  # wins with a short draft
        (VAGUE, 96, (0, 8)),  # loses at load with long drafts
        (Traffic("rag", 2, 38, context=20_000.0), 8, (0, 3, 5)),  # hardly anything is accepted
    ],
)
def test_the_action_agrees_with_what_the_engine_costs(traffic, requests, arms):
    wanted = truth(traffic, requests, arms)
    best = max(wanted, key=wanted.get)
    right = wrong = 0
    for seed in range(10):
        verdict = verdict_of(traffic, requests, seed, arms)
        if verdict.action in ("keep", "set_k"):
            # A shorter draft that cannot be told from the best is right, too.
            right += wanted[verdict.k] > 0.9 * wanted[best]
            wrong += wanted[verdict.k] < 1.0
        elif verdict.action == "disable":
            right += best == 0
            wrong += wanted[best] > 1.02
        elif verdict.action == "no_difference":
            right += abs(math.log(wanted[best])) < 0.02

    assert right >= 9
    assert wrong == 0


def test_the_step_model_is_recovered_from_the_same_blocks():
    blocks = []
    for requests in (4, 32, 128):
        for context in (1000.0, 20_000.0):
            traffic = Traffic("x", 5, 5, context=context)
            blocks += experiment(traffic, requests, (0, 3), 6, requests, noise=0.01, drift=0.0)[0]

    model = fit_blocks(blocks)

    assert model.step == pytest.approx(6940, rel=0.05)
    assert model.per_query == pytest.approx(18.4, rel=0.05)
    assert model.per_context == pytest.approx(0.0486, rel=0.05)
    assert model.critical_context == pytest.approx(18.4 / 0.0486, rel=0.1)


def test_the_recommended_gate_beats_every_single_switch_in_mixed_traffic():
    evidence = [experiment(t, 128, ARMS, 20, index, 0.02) for index, t in enumerate((SURE, VAGUE))]
    blocks, parts = ([*a, *b] for a, b in zip(*evidence, strict=True))
    table = recommend(of_epoch(blocks, parts), GateTable((), 5), now=NOW).new

    def gated(name, batch):
        return table.k(State(name, context=500, output=100, batch=batch))

    gains = []
    for seed in range(8):
        rates = {
            k: serve([SURE, VAGUE], 64, lambda name, batch, k=k: k, 400, seed)[0] for k in ARMS
        }
        gate, _ = serve([SURE, VAGUE], 64, gated, 400, seed)
        gains.append(math.log(gate / max(rates.values())))

    half = 2.365 * np.std(gains, ddof=1) / math.sqrt(len(gains))
    assert gated("sql", 128) > gated("prose", 128)
    assert np.mean(gains) - half > 0


def test_a_class_without_speculation_still_waits_for_its_neighbours():
    def only_sure(name, batch):
        return 5 if name == "sql" else 0

    _, mixed = serve([SURE, VAGUE], 64, only_sure, 400, 1)
    _, alone = serve([SURE, VAGUE], 64, lambda name, batch: 0, 400, 1)

    assert mixed["sql"] < alone["sql"]
    assert mixed["prose"] > 1.2 * alone["prose"]
