"""Recorded times and counts are what the work took, by a clock that only the work advances."""

from dataclasses import replace
from itertools import pairwise

import pytest
from engine.tiny_models import TINY, Record, near, prompts, tiny_model

from specscope.engine.api import RequestEnd, RequestInfo, SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.replay import ReplayDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.server.metrics import EngineMetrics

LONG = replace(TINY, max_context=1024)


class Stepping:
    """A clock that only the work advances."""

    def __init__(self):
        self.now = 0

    def monotonic_ns(self):
        return self.now

    def unix_ns(self):
        return 1_790_000_000_000_000_000 + self.now

    def wait(self, microseconds):
        self.now += round(1e3 * microseconds)


def slowed(model, clock, monkeypatch, microseconds):
    """Each forward pass of `model` takes that long a token by `clock`."""
    forward = model.forward

    def timed(tokens, *rest):
        clock.wait(microseconds * len(tokens))
        return forward(tokens, *rest)

    monkeypatch.setattr(model, "forward", timed)


def test_recorded_times_are_what_the_work_took(monkeypatch):
    target, clock, record = tiny_model(0, LONG), Stepping(), Record()
    slowed(target, clock, monkeypatch, 10.0)
    drafter = ReplayDrafter({"0": [1] * 40, "1": [2] * 40}, (1.0,) * 4, 61, 100.0, wait=clock.wait)
    engine = Engine(
        target, drafter, k_max=4, slots=2, capacity=500, gate=fixed_gate(3), observers=[record],
        clock=clock, prefill_tokens=64,
    )  # fmt: skip
    lengths = {"0": 5, "1": 400}
    for id, length in lengths.items():
        engine.submit(id, prompts((length,))[0], SamplingParams(max_new_tokens=30))
    while engine.step():
        pass

    for report in record.rounds:
        tokens = sum(k + 1 for k in report.k)
        assert report.prefill_us == 10.0 * report.prefill_tokens
        assert report.draft_us == 100.0 * max(report.k)
        assert report.verify_us == 10.0 * tokens
        assert report.idle_us == report.sample_us == report.catchup_us == 0
        assert report.wall_us == report.prefill_us + report.draft_us + report.verify_us
    for before, after in zip(record.rounds, record.rounds[1:], strict=False):
        assert after.started_at - before.started_at == 1e3 * before.wall_us
    for id, end in record.ends.items():
        # A round's prefill delays every prompt that was read in it.
        reading = [r for r in record.rounds if r.prefill_tokens]
        own = reading[:1] if id == "0" else reading
        assert end.prefill_ms == pytest.approx(1e-3 * sum(r.prefill_us for r in own))
        walls = [r for r in record.rounds if id in r.requests]
        assert end.decode_ms == pytest.approx(1e-3 * sum(r.wall_us for r in walls[1:]))
        assert end.e2e_ms == pytest.approx(end.ttft_ms + end.decode_ms)
    assert len(reading) > 4


def finish(engine):
    while engine.step():
        pass


def test_contexts_are_those_before_the_round(target):
    record, lengths = Record(), {"0": 5, "1": 12, "2": 1}
    engine = Engine(
        target, ModelDrafter(target), k_max=4, slots=2, capacity=60, gate=fixed_gate(2),
        observers=[record],
    )  # fmt: skip
    for id, length in lengths.items():
        engine.submit(id, prompts((length,))[0], SamplingParams(max_new_tokens=17))
    finish(engine)

    for report in record.rounds:
        for id, context, emitted in zip(
            report.requests, report.contexts, report.emitted, strict=True
        ):
            assert context == lengths[id]
            lengths[id] += emitted


def test_catch_up_is_no_prompts_prefill_and_a_prompt_of_one_token_has_none(monkeypatch):
    target, clock, record = tiny_model(0, LONG), Stepping(), Record()
    draft = near(target, 0.05)
    slowed(target, clock, monkeypatch, 10.0)
    slowed(draft, clock, monkeypatch, 1.0)
    engine = Engine(
        target, ModelDrafter(draft), k_max=4, slots=3, capacity=500, gate=fixed_gate(2),
        observers=[record], clock=clock,
    )  # fmt: skip
    lengths = {"0": 40, "1": 1, "2": 300}
    for id, length in lengths.items():
        engine.submit(id, prompts((length,))[0], SamplingParams(max_new_tokens=9))
    finish(engine)

    first = record.rounds[0]
    assert first.prefill_us == 10.0 * (39 + 299)
    assert first.catchup_us == 38 + 298
    assert sum(report.prefill_us for report in record.rounds[1:]) == 0
    prefill = {id: end.prefill_ms for id, end in record.ends.items()}
    assert prefill == {"0": pytest.approx(3.38), "1": 0, "2": pytest.approx(3.38)}


def test_the_queue_ends_with_the_first_row_however_often_a_request_is_put_back(monkeypatch):
    target, clock, record, admitted = tiny_model(0), Stepping(), Record(), {}
    slowed(target, clock, monkeypatch, 10.0)
    monkeypatch.setattr(record, "admitted", lambda info: admitted.setdefault(info.id, clock.now))
    engine = Engine(
        target, ModelDrafter(target), k_max=2, slots=4, capacity=100, gate=fixed_gate(0),
        observers=[record], clock=clock, cache_tokens=130,
    )  # fmt: skip
    for index, text in enumerate(prompts((20, 30, 40, 5, 25, 9))):
        engine.submit(str(index), text, SamplingParams(max_new_tokens=55))
    finish(engine)

    assert sum(end.preemptions for end in record.ends.values()) > 0
    for id, end in record.ends.items():
        assert end.queue_ms == pytest.approx(1e-6 * admitted[id])


def test_a_request_that_goes_while_it_is_read_leaves_no_time_to_the_next(monkeypatch):
    target, clock, record = tiny_model(0), Stepping(), Record()
    slowed(target, clock, monkeypatch, 10.0)
    engine = Engine(
        target, ModelDrafter(target), k_max=2, slots=1, capacity=100, gate=fixed_gate(0),
        observers=[record], clock=clock, prefill_tokens=16,
    )  # fmt: skip
    admit = record.admitted
    monkeypatch.setattr(
        record, "admitted", lambda info: admit(info) or (info.id == "gone" and engine.abort("gone"))
    )
    for id, length in (("gone", 60), ("stays", 10)):
        engine.submit(id, prompts((length,))[0], SamplingParams(max_new_tokens=4))
    began = clock.unix_ns()
    finish(engine)

    assert record.ends["gone"].reason == "abort"
    first = record.rounds[0]
    assert first.requests == ["stays"]
    assert first.started_at > began
    assert first.wall_us == 10.0 * 10


def test_what_observers_take_is_idle_time_of_the_next_round(monkeypatch):
    target, clock, record = tiny_model(0), Stepping(), Record()
    slowed(target, clock, monkeypatch, 10.0)
    keep = record.round_ended
    monkeypatch.setattr(record, "round_ended", lambda report: keep(report) or clock.wait(7.0))
    engine = Engine(
        target, ModelDrafter(target), k_max=2, slots=1, capacity=60, gate=fixed_gate(0),
        observers=[record], clock=clock,
    )  # fmt: skip
    engine.submit("0", prompts((5,))[0], SamplingParams(max_new_tokens=6))
    finish(engine)

    assert [report.idle_us for report in record.rounds] == [0.0] + [7.0] * 5
    assert [report.wall_us for report in record.rounds] == [50.0] + [17.0] * 5
    starts = [report.started_at for report in record.rounds]
    assert [after - start for start, after in pairwise(starts)] == [50_000] + [17_000] * 4


def test_the_time_between_tokens_is_the_decode_time_over_the_gaps():
    metrics = EngineMetrics()
    info = RequestInfo("0", "", 3, SamplingParams(), 0)

    metrics.ended(RequestEnd(info, 10, [1] * 10, 1.0, 2.0, 40.0, 90.0, 131.0, 0, "length"))

    sums = {name: histogram.sum for name, histogram in metrics.histograms.items()}
    assert sums == {
        "queue_seconds": pytest.approx(0.001),
        "time_to_first_token_seconds": pytest.approx(0.04),
        "inter_token_seconds": pytest.approx(0.01),
        "request_seconds": pytest.approx(0.131),
    }
