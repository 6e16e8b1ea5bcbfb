"""From rounds in the store to a proposed table, its experiment, and the table in force.

One engine serves four classes in one batch, on a clock that advances by a known cost. It packs its
rows, so a class that does not draft saves its part of the cost.
"""

import json

import pytest
import torch
from known_cost import Cost, Machine
from mixed_traffic import costed_site

from specscope.cli import main
from specscope.policy.stored import read_policies
from specscope.policy.table import State
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_agent.loss import rows_table

pytestmark = pytest.mark.slow
RATES = {"sql": 0.95, "json": 0.7, "prose": 0.1, "chat": 0.05}
COST = Cost(step=6_000, query=150, context=0.5, draft=400)
BLOCK_S = 0.5


def test_a_table_is_proposed_run_and_adopted(tmp_path, capsys, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rings").mkdir()
    (tmp_path / "sharp.json").write_text(
        json.dumps({"table": [{"class": "sql", "k": 4}, {"class": "json", "k": 4}], "default_k": 0})
    )
    where = f"chdb://{tmp_path}/store"

    def gate(*words):
        code = main(["gate", *words, "--store", where, "--json"])
        return code, json.loads(capsys.readouterr().out)

    with Store.open(where) as store:
        migrate(store)
    assert gate("propose") == (3, {"schema": "specscope.gate/1", "proposal": None})
    with Store.open(where) as store:
        machine = Machine("proposed", drift=0.1, noise=0.03, block=0.0)
        site = costed_site(tmp_path / "rings", store, RATES, COST, (0, 2, 4), machine)
        store.insert("boot", rows_table("boot", [dict(site.hooked.reader.boot)]))
        site.run_arms(["k0", "2", "4", "sharp.json"], 6, BLOCK_S)

    code, found = gate("propose", "--out", "proposed.json")

    assert code == 0
    proposal = found["proposal"]
    assert proposal["composition"].startswith("packed")
    assert (proposal["pairs"], set(proposal["shares"])) == (6, set(RATES))
    assert proposal["gain"]["value"] > 1.05
    assert (proposal["arms"][0], proposal["arms"][-1]) == ("k0", "proposed.json")

    with Store.open(where) as site.store:
        # Both lengths: what the table never met must lie below the table's lower limit.
        site.run_arms(["k0", "k2", "k4", proposal["arms"][-1]], 22, BLOCK_S)
    code, advice = gate("recommend", "--closed-loop", "--out", "advice.json")

    assert code == 0
    (move,) = advice["moves"]
    assert (move["rule"], move["arm"]) == ("adopt", "proposed")
    assert gate("apply", "advice.json")[0] == 0
    with Store.open(where) as store:
        table = read_policies(store)[-1].table
    for name in RATES:
        state = State(name, context=20, output=20, batch=16)
        assert table.k(state) == proposal["lengths"].get(name, proposal["default_k"])
