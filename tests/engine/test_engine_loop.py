"""Requests come, wait, stop, are cancelled, and are all answered; the reports add up."""

import random
from dataclasses import replace

import pytest
from engine.tiny_models import TINY, CountingClock, Record, prompts, random_gate, run, tiny_model

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.errors import BadGate, BadRequest, BadSetting, EngineError, IncompatiblePair

GREEDY = SamplingParams(max_new_tokens=10)


def letters(ids):
    return "".join(chr(97 + token % 26) for token in ids)


def an_engine(target, draft, record=None, **more):
    settings = {"k_max": 4, "slots": 2, "capacity": 60, "gate": fixed_gate(2)} | more
    observers = [record] if record is not None else []
    return Engine(target, ModelDrafter(draft), observers=observers, **settings)


def drain(engine):
    while engine.step():
        pass


def test_an_idle_engine_says_so_and_steps_do_nothing(target, draft):
    engine = an_engine(target, draft)

    assert engine.idle
    assert engine.step() is False

    engine.submit("a", [1, 2, 3], GREEDY)
    assert not engine.idle
    drain(engine)
    assert engine.idle


def test_requests_beyond_the_slots_wait_their_turn(target, draft):
    record = Record()
    engine = an_engine(target, draft, record)
    for index in range(5):
        engine.submit(str(index), [index + 1] * 4, GREEDY, label="x")

    engine.step()

    assert record.rounds[0].waiting == 3
    assert record.rounds[0].prefill_tokens == 6
    drain(engine)
    assert [info.id for info in record.admissions] == ["0", "1", "2", "3", "4"]
    assert {info.label for info in record.admissions} == {"x"}
    assert all(len(report.requests) <= 2 for report in record.rounds)


def test_the_gate_sees_each_sequence_as_it_is(target, draft):
    seen = []

    def gate(sequences, waiting):
        seen.extend((s.request.id, s.context, s.output_tokens, waiting) for s in sequences)
        return [0] * len(sequences)

    run(target, ModelDrafter(draft), [[1, 2, 3], [4]], replace(GREEDY, max_new_tokens=3), gate=gate)

    contexts = [(id, context, output) for id, context, output, _ in seen]
    assert contexts == [
        ("0", 3, 0), ("1", 1, 0), ("0", 4, 1), ("1", 2, 1), ("0", 5, 2), ("1", 3, 2),
    ]  # fmt: skip
    assert {waiting for *_, waiting in seen} == {0}


@pytest.mark.parametrize("answer", [[5], [-1], [], [1, 1]])
def test_a_gate_that_answers_nonsense_is_named(target, draft, answer):
    engine = an_engine(target, draft, gate=lambda sequences, waiting: answer)
    engine.submit("a", [1, 2], GREEDY)

    with pytest.raises(BadGate):
        engine.step()


def test_a_stop_string_ends_a_text_with_the_token_that_completes_it(target, draft):
    params = SamplingParams(temperature=1.5, seed=4, max_new_tokens=40)
    plain = run(target, ModelDrafter(draft), [[5, 6]], params).texts["0"]
    text = letters(plain)
    stop = text[11:14]
    cut = text.index(stop) + 3

    for k in (0, 1, 4):
        record = run(
            target, ModelDrafter(draft), [[5, 6]], replace(params, stop=("@", stop)),
            gate=k, detokenize=letters,
        )  # fmt: skip

        assert record.texts["0"] == plain[:cut]
        assert record.ends["0"].reason == "stop"
        assert record.rounds[-1].ends == ["stop"]
        assert sum(sum(report.emitted) for report in record.rounds) == cut


def test_an_aborted_request_leaves_at_once_wherever_it_is(target, draft):
    record = Record()
    engine = an_engine(target, draft, record, slots=2)
    for index in range(4):
        engine.submit(str(index), [1, 2, index], replace(GREEDY, max_new_tokens=30))
    engine.step()

    engine.abort("0")
    engine.abort("3")
    engine.abort("nobody")
    engine.step()

    assert {id: end.reason for id, end in record.ends.items()} == {"0": "abort", "3": "abort"}
    assert record.ends["3"].output_tokens == 0
    assert record.rounds[1].requests == ["1", "2"]
    drain(engine)
    alone = run(target, ModelDrafter(draft), [[1, 2, 1]], replace(GREEDY, max_new_tokens=30))
    assert record.texts["1"] == alone.texts["0"]


@pytest.mark.parametrize(
    ("prompt", "change", "reason"),
    [
        ([], {}, "empty"),
        ([1] * 60, {}, "60 tokens, at most 59"),
        ([61], {}, "outside 0..60"),
        ([1], {"max_new_tokens": 0}, "max_new_tokens"),
        ([1], {"temperature": -1.0}, "temperature"),
        ([1], {"temperature": float("nan")}, "temperature"),
        ([1], {"top_p": 0.0}, "top_p"),
        ([1], {"top_k": -1}, "top_k"),
        ([1], {"mode": "beam"}, "beam"),
        ([1], {"eos": tuple(range(9))}, "at most 8"),
        ([1], {"stop": ("x",)}, "detokenize"),
        ([1], {"seed": 1 << 63}, "64 bits"),
    ],
)
def test_a_request_that_can_never_run_is_refused_with_its_reason(
    target, draft, prompt, change, reason
):
    engine = an_engine(target, draft)

    with pytest.raises(BadRequest, match=reason):
        engine.submit("a", prompt, replace(GREEDY, **change))
    assert engine.idle


def test_an_id_in_use_is_refused_and_free_again_at_its_end(target, draft):
    engine = an_engine(target, draft)
    engine.submit("a", [1], GREEDY)

    with pytest.raises(BadRequest, match="'a'"):
        engine.submit("a", [1], GREEDY)

    drain(engine)
    engine.submit("a", [1], GREEDY)


@pytest.mark.parametrize(
    "change",
    [{"slots": 0}, {"k_max": -1}, {"capacity": 1}, {"capacity": 252}, {"synthetic": [2.0] * 4}],
)
def test_an_engine_that_cannot_work_is_not_built(target, draft, change):
    with pytest.raises(BadSetting):
        an_engine(target, draft, **change)
    assert issubclass(BadSetting, EngineError)


def test_a_draft_that_does_not_fit_the_target_is_refused(target, draft):
    other = tiny_model(1, replace(TINY, vocab=60))
    short = tiny_model(1, replace(TINY, max_context=64))

    with pytest.raises(IncompatiblePair, match=r"61.*60"):
        an_engine(target, other)
    with pytest.raises(BadSetting, match="the draft has 64"):
        an_engine(target, short)


def test_the_walls_of_a_busy_loop_add_up_to_its_time(target, draft):
    record, clock = Record(), CountingClock()
    engine = an_engine(target, draft, record, clock=clock)
    for index in range(6):
        engine.submit(str(index), [1, 2, index], GREEDY)

    began = clock.monotonic_ns()
    drain(engine)
    took = (clock.monotonic_ns() - began) / 1e3

    walls = sum(report.wall_us for report in record.rounds)
    assert walls > 100_000
    assert 0 < took - walls < 20_000  # readings before the first round and after the last
    for report in record.rounds:
        parts = (
            report.prefill_us + report.catchup_us + report.draft_us + report.verify_us
            + report.sample_us + report.idle_us
        )  # fmt: skip
        assert parts == pytest.approx(report.wall_us, rel=1e-9)
        assert report.timing_source == "host"


def test_time_that_the_caller_spends_between_rounds_is_idle_but_not_after_the_last(target, draft):
    record, clock = Record(), CountingClock()
    engine = an_engine(target, draft, record, clock=clock)
    engine.submit("a", [1, 2], replace(GREEDY, max_new_tokens=100))
    engine.step()

    clock.now += 300_000_000
    engine.step()
    assert 300_000 < record.rounds[1].idle_us < 330_000

    engine.abort("a")
    engine.step()
    clock.now += 300_000_000
    engine.submit("b", [1, 2], GREEDY)
    engine.step()
    assert record.rounds[2].wall_us < 100_000


def test_a_requests_times_are_in_order(target, draft):
    record = Record()
    engine = an_engine(target, draft, record, slots=1, clock=CountingClock())
    engine.submit("a", [1] * 9, GREEDY)
    engine.submit("b", [2] * 9, GREEDY)

    drain(engine)

    for end in record.ends.values():
        assert 0 <= end.queue_ms <= end.queue_ms + end.prefill_ms <= end.ttft_ms
        assert end.ttft_ms + end.decode_ms <= end.e2e_ms
    first, second = record.ends["a"], record.ends["b"]
    assert first.queue_ms < second.queue_ms
    assert second.queue_ms > first.decode_ms


def test_a_long_mixed_run_answers_everybody_and_leaves_nothing_behind(draft):
    target, rng, record = tiny_model(0), random.Random(4), Record()
    engine = an_engine(target, draft, record, slots=5, gate=random_gate(4))
    open_ids, submitted = set(), 0

    while submitted < 400 or not engine.idle:
        for _ in range(rng.choice((0, 0, 1, 3))):
            if submitted < 400:
                mode = rng.choice(("greedy", "coupled", "rejection"))
                params = SamplingParams(
                    temperature=rng.choice((0.0, 1.0)), mode=mode, seed=submitted,
                    max_new_tokens=rng.randint(1, 30), eos=(rng.randrange(61),),
                )  # fmt: skip
                engine.submit(str(submitted), prompts((rng.randint(1, 40),))[0], params)
                open_ids.add(str(submitted))
                submitted += 1
        if open_ids and rng.random() < 0.1:
            engine.abort(rng.choice(sorted(open_ids)))
        engine.step()
        open_ids -= record.ends.keys()

    assert len(record.ends) == 400
    assert {end.reason for end in record.ends.values()} == {"eos", "length", "abort"}
    assert engine.idle
    assert not engine.known
