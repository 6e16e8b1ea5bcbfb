"""engine bench: every cell of the plan, and the bytes that its bandwidth is made of."""

from dataclasses import asdict, replace

import pytest
from engine.tiny_models import TINY, tiny_model

from specscope.engine.bench.bench import Cell, Plan, bench, bytes_of_pass, table
from specscope.engine.decode.drafters.drafter import NoDrafter
from specscope.engine.errors import BadSetting
from specscope.engine.pair import load_bundled

PLAN = Plan(batches=(1, 2), contexts=(12, 20), ks=(2,), labels=("sql",), new_tokens=8, repeats=1)


@pytest.fixture(scope="module")
def pair():
    return load_bundled()


def test_every_cell_of_the_plan_is_measured(pair):
    result = bench(pair, PLAN)

    places = {(c["drafter"], c["batch"], c["context"], c["k"]) for c in result["cells"]}
    arms = [("none", 0), ("model", 2), ("eagle", 2), ("ngram", 2)]
    assert places == {(name, b, c, k) for b in (1, 2) for c in (12, 20) for name, k in arms}
    assert set(result["cells"][0]) == set(Cell.__dataclass_fields__)
    assert result["plan"] == asdict(PLAN)
    for cell in result["cells"]:
        assert cell["tokens_per_s"] > 0
        assert 1 <= cell["tokens_per_round"] <= cell["k"] + 1
        assert cell["of_copy"] == pytest.approx(cell["achieved_gb_s"] / result["copy_gb_s"])
        assert (cell["speedup"] is None) == (cell["drafter"] == "none")
        assert (cell["draft_us"] > 0) == (cell["drafter"] != "none")
    lines = table(result).splitlines()
    assert len(lines) == 2 + len(places)
    assert {len(line) for line in lines[1:]} == {len(lines[1])}


def test_target_only_is_measured_without_a_drafter(pair):
    drafter = pair.drafter("none")

    # One that reads texts would keep a GPU waiting after each round, and speculation looks better.
    assert isinstance(drafter, NoDrafter)
    assert not drafter.reads_texts
    with pytest.raises(BadSetting):
        replace(pair, draft=None).drafter("model")


@pytest.mark.parametrize("wrong", [{"drafters": ("medusa",)}, {"labels": ("poems",)}])
def test_a_plan_that_cannot_be_is_refused(pair, wrong):
    with pytest.raises(BadSetting):
        bench(pair, replace(PLAN, **wrong))


def test_a_pass_reads_all_weights_but_an_unshared_table_of_embeddings():
    tied, untied = (tiny_model(0, replace(TINY, tied=tied)) for tied in (True, False))

    assert bytes_of_pass(untied) == bytes_of_pass(tied)
    assert bytes_of_pass(tied) == 8 * sum(p.numel() for p in {*tied.parameters()})
