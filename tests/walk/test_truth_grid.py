"""The right action comes out of the real engine, for truths that were planted.

Engine, adapter, recorder, ring, transposition, store, rollups and evaluator run as they are; the
clock advances by a known cost. `bench/truth_grid.py` runs the same truths many times over and
counts; here each comes once, with the same seed every time.
"""

import contextlib
from random import Random

import pytest
import torch
from gate.screens import answers, disagreements
from known_cost import Machine
from truths import TRUTHS, cohort, hooked_engine, scores

from specscope.store.connection import Store
from specscope.store.migrate import migrate

pytestmark = pytest.mark.slow
BY_NAME = {truth.name: truth for truth in TRUTHS}
ONCE = ("lose: gaps", "wrong k", "context-dependent", "load-dependent")


@contextlib.contextmanager
def opened(folder):
    """A folder for rings and a store; there is one at a time."""
    torch.set_num_threads(1)
    (folder / "rings").mkdir()
    with Store.open(f"chdb://{folder}/store") as store:
        migrate(store)
        yield folder / "rings", store


@pytest.fixture
def place(tmp_path):
    with opened(tmp_path) as place:
        yield place


def test_a_round_takes_what_it_costs_and_no_more(place):
    rings, store = place
    truth = BY_NAME["lose: gaps"]
    (stream,) = truth.streams
    exact = Machine("exact", drift=0.0, noise=0.0, block=0.0)
    hooked = hooked_engine(truth, "exact", exact, rings)
    for pair, k in enumerate((0, 2, 4), start=1):
        hooked.drafter.seed = Random(pair).getrandbits(31)
        cohort(hooked, stream, k, pair)
    hooked.close(store)

    rows = store.rows("SELECT * FROM round FINAL WHERE replica = 'exact' ORDER BY seq")

    assert {row["arm"] for row in rows} == {"k0", "k2", "k4"}
    for row in rows:
        asked = int(row["arm"][1:])
        assert row["wall_us"] == pytest.approx(
            truth.cost.round(row["n_q"], row["n_kv"], asked), rel=1e-6
        )
        assert row["verify_us"] == pytest.approx(
            truth.cost.verify(row["n_q"], row["n_kv"]), rel=1e-6
        )
        assert row["draft_us"] == pytest.approx(truth.cost.draft * asked, rel=1e-6)
        assert row["idle_us"] == pytest.approx(truth.cost.gap if asked else 0.0, rel=1e-6)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Scores of the truths, and the store that holds their runs, closed."""
    folder = tmp_path_factory.mktemp("grid")
    with opened(folder) as place:
        by_stream = scores([BY_NAME[name] for name in ONCE], [0], *place)
    return by_stream, f"chdb://{folder}/store"


def test_every_truth_gets_the_right_action_and_every_loss_its_planted_cause(found):
    found, _ = found

    notes = {name: score.notes for name, score in found.items() if score.notes}
    assert not notes
    assert sum(len(score.primaries) for score in found.values()) == 3


@pytest.mark.parametrize("options", [[], ["--default-k", "4"]])
def test_every_screen_gives_one_answer_for_each_segment_of_the_grid(found, options):
    by_stream, where = found

    assert disagreements(where, *options) == []
    assert len(answers(where)[0]) == len(by_stream)
