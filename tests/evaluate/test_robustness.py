"""Whatever rows come, a verdict or an honest silence comes out; never a crash, never a NaN."""

import dataclasses
import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from specscope.evaluate.experiment.blocks import BlockPart, BlockTime
from specscope.evaluate.experiment.paired import paired
from specscope.evaluate.verdict.choice import Rules
from specscope.evaluate.verdict.decide import decide
from specscope.evaluate.verdict.fleet import fleet_verdict
from specscope.evaluate.verdict.switch import compare_switches

count = st.integers(0, 2000)
time = st.one_of(st.none(), st.floats(0, 1e9), st.just(math.nan), st.just(math.inf))
keys = st.fixed_dictionaries(
    {
        "epoch": st.sampled_from(["e1", "e2"]),
        "policy": st.sampled_from([0, 1]),
        "replica": st.sampled_from(["a", "b"]),
        "boot": st.just("x"),
        "pair": st.integers(0, 4),
        "arm": st.sampled_from(["", "k0", "k2", "k4", "current", "current+x", "clean", "k0'"]),
    }
)


@st.composite
def blocks(draw):
    return BlockTime(
        **draw(keys),
        requests=draw(count),
        rounds=draw(count),
        request_rounds=draw(count),
        classes=tuple(draw(st.lists(st.sampled_from("xyz"), max_size=2, unique=True))),
        k=draw(st.integers(0, 8)),
        wall_us=draw(time),
        draft_us=draw(time),
        verify_us=draw(time),
        idle_us=draw(time),
        n_q=draw(count),
        proposed=draw(count),
        accepted=draw(count),
        emitted=draw(count),
        padded_tokens=draw(count),
        waiting=draw(st.one_of(st.none(), count)),
        ended_requests=draw(st.one_of(st.none(), count)),
        output_tokens=draw(st.one_of(st.none(), count)),
        first_at=draw(count),
        last_at=draw(count),
        gap_bins=(100, 120),
        gap_counts=(draw(count), draw(count)),
        tpot_bins=(90,),
        tpot_counts=(draw(count),),
    )


@st.composite
def parts(draw):
    tested = sorted(draw(st.lists(count, max_size=4)), reverse=True)
    return BlockPart(
        **draw(keys),
        class_=draw(st.sampled_from("xyz")),
        context_bucket="0-1k",
        output_bucket="unknown",
        k=4,
        request_rounds=draw(count),
        proposed=draw(count),
        accepted=draw(count),
        emitted=draw(count),
        tested=tuple(tested),
        kept=tuple(n // 2 for n in tested),
        requests=draw(count),
    )


@settings(max_examples=60)
@given(
    st.lists(blocks(), max_size=20),
    st.lists(parts(), max_size=10),
    st.sampled_from(["cohort", "switchback", "closed_loop"]),
    st.sampled_from([None, "throughput", "latency"]),
    st.booleans(),
)
def test_any_rows_give_a_verdict_or_silence(rows, kinds, design, objective, often):
    rules = Rules(
        objective=objective, looked_at_often=often, current=4, tpot_allowance_ms={"x": 8.0}
    )

    verdicts = decide(rows, kinds, rules, design)
    stories = compare_switches(paired(rows, kinds, design), rules)

    fleet = fleet_verdict(verdicts)
    plain = [dataclasses.asdict(thing) for thing in (*verdicts, *stories, fleet)]
    json.dumps(plain, allow_nan=False)
    for verdict in verdicts:
        assert verdict.reasons
        if verdict.grade == "measured":
            assert {"k0"} & {e.baseline for e in verdict.speedups}


@settings(max_examples=40)
@given(st.lists(blocks(), max_size=20), st.randoms())
def test_the_order_of_rows_and_second_deliveries_do_not_matter(rows, random):
    shuffled = rows + rows[: len(rows) // 2]
    random.shuffle(shuffled)

    plain, other = decide(rows, []), decide(shuffled, [])

    assert [(v.epoch, v.segment, v.action, v.k) for v in plain] == [
        (v.epoch, v.segment, v.action, v.k) for v in other
    ]
