"""In a closed loop the clients are the load: what a faster arm is asked more must not split it."""

import dataclasses

from evaluate.block_rows import Kind, rows

from specscope.evaluate.experiment.pairs import pairs_of
from specscope.evaluate.verdict.decide import decide

WIN = Kind({0: 1.0, 4: 2.5}, {0: 1.0, 4: 1.6})


def blocks_of_eight_clients():
    """Blocks that end by time: 15 to 19 requests each, eight of them at once."""
    times, parts = rows({"sql": WIN}, pairs=24, requests=8)
    return [dataclasses.replace(t, requests=15 + t.pair % 5) for t in times], parts


def test_pairs_on_both_sides_of_an_edge_are_one_segment():
    times, parts = blocks_of_eight_clients()

    open_, closed = (
        decide(times, parts, None, "switchback"),
        decide(times, parts, None, "closed_loop"),
    )

    # Of open traffic these are arrivals of one rate, wherever counts fall.
    assert [v.segment.load for v in open_] == ["5-16"]
    assert [(v.segment.load, v.action, v.pairs) for v in closed] == [("5-16", "set_k", 24)]
    assert closed[0].applicable


def test_how_many_rounds_an_arm_needed_does_not_matter():
    times, parts = blocks_of_eight_clients()

    for pair in pairs_of(times, parts, "closed_loop"):
        assert len({block.rounds for block in pair.blocks.values()}) == 2
        assert pair.segment.load == "5-16"
