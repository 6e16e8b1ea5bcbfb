"""The loop is closed: calibrate, recommend, apply, and the running engine is better off.

One engine serves throughout; all that reaches it is policies on its control page. Four classes
share its batch, on a clock that advances by a known cost.
"""

import numpy as np
import pytest
import torch
from known_cost import HOUR, Cost, Machine
from mixed_traffic import costed_site

from specscope.evaluate.experiment import contrast, objectives
from specscope.evaluate.experiment.checks import usable_pairs
from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evidence.read import read, read_blocks
from specscope.gate.recommend import recommendation
from specscope.policy.table import State
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import Roller

pytestmark = pytest.mark.slow
RATES = {"sql": 0.95, "json": 0.6, "prose": 0.15, "chat": 0.05}
COST = Cost(step=10_000, query=100, context=0.5, draft=600)
ARMS = (0, 2, 4)
PAIRS, BLOCK_S = 30, 0.4  # an arm with fewer than 300 rounds of a class decides nothing
HELD_OUT = 36  # a delay has an interval from 30 blocks on, and in some a class has no settled gap
ALLOWED = {"sql": 15.0, "json": 25.0, "prose": 40.0, "chat": 14.0}
BEGAN = 497_222 * HOUR  # pairs are numbered by the time, and their numbers draw the arms


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Calibrated, with the recommended table in force and its blocks in the store."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("loop")
    (folder / "rings").mkdir()
    with Store.open(f"chdb://{folder}/store") as store:
        migrate(store)
        store.command("SYSTEM STOP TTL MERGES")  # the same time in every run, and so long ago
        machine = Machine("loop", drift=0.1, noise=0.03, block=0.0)
        running = costed_site(folder / "rings", store, RATES, COST, ARMS, machine, began=BEGAN)
        running.calibrate(PAIRS, BLOCK_S)
        roll_all(running)
        running.found = recommendation(read(store), default_k=0, closed_loop=True, now=running.now)
        running.policy = running.hold_out(
            running.found.new, HELD_OUT, BLOCK_S, ("current", *running.names)
        )
        running.hooked.close(store)
        roll_all(running)
        yield running


def roll_all(site):
    """Everything into rollups, at the site's own time."""
    roller = Roller(site.store)
    roller.note_all()
    roller.tick(now=site.now, everything=True)


def length_of(site, label):
    return site.found.new.k(State(label, context=20, output=20, batch=16))


def test_each_class_gets_the_length_that_pays_for_it(site):
    assert {label: length_of(site, label) for label in RATES} == {
        "sql": 4,
        "json": 2,
        "prose": 0,
        "chat": 0,
    }


def test_the_running_engine_follows_the_table_class_by_class(site):
    rows = site.store.rows(
        "SELECT class, max(arrayMax(k)) AS longest FROM request_part FINAL "
        f"WHERE policy = {site.policy} AND arm = 'current' GROUP BY class"
    )

    assert {row["class"]: row["longest"] for row in rows} == {
        label: length_of(site, label) for label in RATES
    }
    assert len(site.store.rows("SELECT boot FROM boot FINAL")) == 1


def test_throughput_is_above_that_of_the_best_single_length(site):
    blocks, parts = read_blocks(site.store, f"policy = {site.policy}")
    (verdict,) = decide(blocks, parts, Rules(looked_at_often=True), "closed_loop")
    pairs = usable_pairs(pairs_of(blocks, parts), "closed_loop").pairs

    gains = {
        arm: contrast.estimate(
            objectives.measure(pairs, "current", arm, "throughput"), "current", arm, 0.95
        )
        for arm in site.names
    }

    assert (verdict.action, verdict.best) == ("keep", ("current",))
    assert min(gain.low for gain in gains.values()) > 1.0


def test_a_class_that_exceeds_its_allowance_is_routed_and_no_other(site):
    since = site.hooked.clock.began
    found = recommendation(
        read(site.store, since=since), closed_loop=True, allowances=ALLOWED, now=site.now
    )
    rows = site.store.rows(
        "SELECT class, decode_ms / (output_tokens - 1) AS tpot FROM request FINAL "
        f"WHERE policy = {site.policy} AND arm = 'current' AND output_tokens > 1"
    )

    exceeding = {
        label
        for label, allowed in ALLOWED.items()
        if np.quantile([row["tpot"] for row in rows if row["class"] == label], 0.95) > allowed
    }

    assert exceeding
    assert exceeding < set(ALLOWED)
    assert set(found.routes) == exceeding
    assert {one.action for one in found.delays if one.class_ not in exceeding} == {"keep"}
