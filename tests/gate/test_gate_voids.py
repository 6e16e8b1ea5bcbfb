"""A guardrail that fires voids the pairs that it cut: in the store, the verdict and the table."""

import dataclasses
import json

import pytest
from evaluate.block_rows import Kind, rows
from evaluate.reasons import numbers
from gate.test_gate_commands import put_blocks, run

from specscope.cli import main
from specscope.evaluate.experiment.blocks import LeftOut
from specscope.evaluate.statistics.quantiles import bin_of
from specscope.evaluate.verdict.decide import decide
from specscope.evidence.guardrail import Hold, void_pairs
from specscope.report.views import segment_row
from specscope.store.connection import Store
from specscope_agent.guardrail import Held
from specscope_agent.loss import rows_table

WIN = Kind({0: 1.0, 4: 3.6}, {0: 1.0, 4: 1.6})
MINUTE = 60 * 10**9
POLICY = {"kind": "blocks", "arms": [{"name": "k0"}, {"name": "k4"}], "block_ms": 120_000}


def hold(fired_at, until, **other):
    return Hold(
        **{"replica": "r0", "boot": "b0", "policy": 7} | other, fired_at=fired_at, until=until
    )


def voided(blocks):
    return sorted({block.pair for block in blocks if block.void})


def test_pairs_that_are_numbered_by_time_are_void_from_the_hold_to_its_end():
    blocks, _ = rows({"sql": WIN}, pairs=20)

    # Pair p runs from minute 4p on; the guardrail holds from minute 22 to minute 37.
    found = void_pairs(blocks, [hold(22 * MINUTE, 37 * MINUTE)], {7: POLICY})

    assert voided(found) == [5, 6, 7, 8, 9]
    assert {block.void for block in found} == {None, LeftOut.GUARDRAIL}


@pytest.mark.parametrize("other", [{"replica": "r1"}, {"boot": "b1"}, {"policy": 8}])
def test_a_hold_elsewhere_or_under_another_policy_voids_nothing(other):
    blocks, _ = rows({"sql": WIN}, pairs=20)

    assert voided(void_pairs(blocks, [hold(0, 99 * MINUTE, **other)], {7: POLICY})) == []


def test_pairs_without_a_clock_are_void_where_a_block_reaches_into_the_hold():
    blocks, _ = rows({"sql": WIN}, pairs=20)  # pair p runs from second p to p + 1

    found = void_pairs(blocks, [hold(8 * 10**9, 10 * 10**9)], {7: {"kind": "cohort"}})

    assert voided(found) == [6, 7, 8, 9, 10]


def test_a_report_s_chunk_gaps_are_of_the_pairs_that_decided():
    blocks, parts = rows({"sql": WIN}, pairs=24)
    odd = [
        dataclasses.replace(
            block,
            gap_bins=(bin_of(900.0 if block.pair <= 3 else 10.0),),
            gap_counts=(100,),
            void=LeftOut.GUARDRAIL if block.pair <= 3 else None,
        )
        for block in blocks
    ]

    (verdict,) = decide(odd, parts)

    gaps = {arm.chunk_gap_p95_ms for arm in segment_row(verdict, "sql").arms}
    assert all(gap == pytest.approx(10.0, rel=0.01) for gap in gaps)


def test_a_void_pair_is_left_out_and_counted_not_repaired():
    blocks, parts = rows({"sql": WIN}, pairs=24)
    spoilt = [
        dataclasses.replace(b, void=LeftOut.GUARDRAIL) if b.pair <= 3 and b.k == 0 else b
        for b in blocks
    ]

    (whole,), (fewer,) = decide(blocks, parts), decide(spoilt, parts)

    assert (whole.pairs, fewer.pairs) == (24, 21)
    assert fewer.left_out == ((LeftOut.GUARDRAIL, 3),)
    assert numbers(fewer, "left_out") == {"reason": "guardrail", "pairs": 3}


def test_what_a_sidecar_said_reaches_the_table_and_the_report(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        put_blocks(store, {"sql": WIN})
        began = min(
            r["f"] for r in store.rows("SELECT toUnixTimestamp64Nano(first_at) f FROM block_time")
        )
        held = Held(7, began, began + 5 * 10**9, "p95 of chunk gaps")
        loss = {"replica": "r0", "boot": "b0", "lost_at": held.fired_at, "table": "block"}
        loss |= {"reason": "guardrail", "count": 1, "detail": held.detail}
        store.insert("loss", rows_table("loss", [loss]))

    _, out, _ = run(capsys, "recommend", "--store", where, "--json")
    (move,) = json.loads(out)["moves"]
    main(["report", "--store", where, "--out", str(tmp_path / "report"), "--json"])
    report = json.loads(capsys.readouterr().out)

    assert (move["rule"], move["pairs"]) == ("insufficient", 14)  # pairs 1 to 6 are void
    assert [(row["reason"], row["count"]) for row in report["losses"]] == [("guardrail", 1)]
    (left,) = [r for r in report["segments"][0]["reasons"] if r["code"] == "left_out"]
    assert left["numbers"] == {"reason": "guardrail", "pairs": 6}
