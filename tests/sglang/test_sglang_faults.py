"""A fault at each point where the SGLang adapter hooks: SGLang serves on, the ring says why."""

import gc
import importlib
import weakref

import pytest

from specscope_hook.adapters import sglang_worker
from specscope_hook.columns import TimingSource
from specscope_hook.timers import CudaTimer, Part


def boom(*_, **__):
    raise ZeroDivisionError("planted")


class Broken:
    """A timer with a fault in one place."""

    source = TimingSource.HOST

    def __init__(self, call, part):
        self.bad = (call, part)

    def open(self, part):
        if self.bad == ("open", part):
            boom()

    def close(self, part):
        if self.bad == ("close", part):
            boom()

    def seal(self, tag):
        pass

    def resolved(self):
        return []


def inside(name, owner=None):
    def plant(scheduler):
        probe = scheduler._specscope
        setattr(getattr(probe, owner) if owner else probe, name, boom)

    return plant


def timer(call, part):
    def plant(scheduler):
        scheduler._specscope._worker.timer = Broken(call, part)

    return plant


POINTS = {
    "admission": inside("queue", "_requests"),
    "abort": inside("end", "_requests"),
    "launch": inside("_launch"),
    "launched": inside("_launched"),
    "tokens": inside("_read"),
    "round": inside("_end"),
    "draft": timer("open", Part.DRAFT),
    "draft over": timer("close", Part.DRAFT),
    "verify": timer("open", Part.VERIFY),
    "forward": timer("close", Part.VERIFY),
    "sample": timer("close", Part.SAMPLE),
    "close": inside("flush", "_writer"),
}


def outputs(engine, scheduler):
    reqs = [engine.request(f"r{n}", max_new_tokens=6 + n) for n in range(3)]
    gone = engine.request("gone")
    scheduler._add_request_to_queue(gone)
    scheduler.abort(gone)
    ring = engine.serve(*reqs, scheduler=scheduler)
    return [(list(req.output_ids), req.truth) for req in reqs], ring


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_a_fault_at_any_point_leaves_serving_as_it_is(engine, point, overlap):
    scheduler = engine.start(overlap=overlap)
    POINTS[point](scheduler)

    made, ring = outputs(engine, scheduler)

    assert "ZeroDivisionError" in ring.fault
    assert not scheduler._specscope
    engine.bags["parallel"].attn_tp_rank = 1  # a rank that nobody watches
    unwatched = engine.build(overlap=overlap)
    assert made == outputs(engine, unwatched)[0]


@pytest.mark.parametrize("point", ["launched", "tokens", "round", "sample"])
def test_after_a_fault_nothing_of_the_engine_is_held(engine, point):
    scheduler = engine.start(overlap=True)
    probe = scheduler._specscope

    def plant(scheduler):
        POINTS[point](scheduler)

    reqs = [engine.request(f"r{n}", max_new_tokens=20) for n in range(3)]
    scheduler.plan.events[7] = plant
    ring = engine.serve(*reqs, scheduler=scheduler)
    waiting = [weakref.ref(req) for req in reqs]
    del reqs, scheduler.running
    scheduler.result_queue.clear()
    gc.collect()

    assert "ZeroDivisionError" in ring.fault
    assert len(ring.rounds) > 0
    assert (probe._requests.running, probe._rows) == ({}, None)
    assert not probe._writer._waiting
    assert [ref() for ref in waiting] == [None] * 3


@pytest.mark.parametrize("algorithm", ["NONE", "NGRAM"])
def test_the_same_without_a_drafter(engine, algorithm):
    scheduler = engine.start(algorithm=algorithm)
    timer("open", Part.VERIFY)(scheduler)

    made, ring = outputs(engine, scheduler)

    assert "ZeroDivisionError" in ring.fault
    assert [len(tokens) >= 6 for tokens, _ in made] == [True] * 3


def test_an_engine_that_lost_what_is_read_of_a_result_is_left_alone(engine):
    scheduler = engine.start()
    requests = importlib.import_module("sglang.srt.requests")
    init = requests.GenerationBatchResult.__init__

    def without(self, *args, **kwargs):
        init(self, *args, **kwargs)
        type(self).speculative_num_draft_tokens = property(boom, lambda *_: None)

    requests.GenerationBatchResult.__init__ = without

    made, ring = outputs(engine, scheduler)

    assert "round" in ring.fault
    assert ring.rounds == []
    assert len(made) == 3


def test_an_engine_that_fails_itself_fails_as_it_would_and_the_ring_ends(engine, monkeypatch):
    scheduler = engine.start()
    monkeypatch.setattr(scheduler.tp_worker.plan, "spend", boom)

    with pytest.raises(ZeroDivisionError, match="planted"):
        engine.serve(engine.request("a"), scheduler=scheduler)

    ring = engine.ring()
    assert (ring.ended, ring.fault) == (True, "")


class Device:
    """What the timer uses of torch.cuda: events that happen when they are recorded, or late."""

    def __init__(self, hands):
        self.hands = hands
        self.late = False
        device = self

        class Event:
            def __init__(self, enable_timing):
                self.at = 0

            def record(self):
                self.at = device.hands.ns

            def query(self):
                return not device.late

            def elapsed_time(self, later):
                return (later.at - self.at) / 1e6

        self.Event = Event
        self.cuda = self

    def is_current_stream_capturing(self):
        return False


@pytest.mark.parametrize("algorithm", ["EAGLE", "NGRAM", "NONE"])
def test_events_of_the_device_give_the_parts_and_the_gaps_between_them(
    engine, algorithm, monkeypatch
):
    device = Device(engine.hands)
    monkeypatch.setattr(sglang_worker, "_timer_for", lambda name: CudaTimer(device))
    late = engine.request("b", prompt=30, max_new_tokens=8)
    costs = {"prompt": 500, "forward": 100, "draft": 40, "draft_extend": 9, "sample": 7}

    ring = engine.serve(
        engine.request("a", max_new_tokens=12),
        algorithm=algorithm,
        events={3: lambda s: s._add_request_to_queue(late)},
        costs_us=costs | {"process": 10, "prepare": 5},
    )

    parts = {
        "EAGLE": (149, 105, 7),
        "NGRAM": (40, 100, 7),
        "NONE": (0, 100, pytest.approx(float("nan"), nan_ok=True)),
    }[algorithm]
    second = ring.rounds[1]
    assert (second.draft_us, second.verify_us, second.sample_us) == pytest.approx(
        parts, abs=1e-3, nan_ok=True
    )
    assert second.timing_source == TimingSource.CUDA
    assert (second.prefill_us, second.idle_us) == pytest.approx((500, 20), abs=1e-3)
    assert ring.rounds[2].idle_us == pytest.approx(10, abs=1e-3)


def test_a_device_that_never_answers_holds_no_round_back_for_ever(engine, monkeypatch):
    device = Device(engine.hands)
    device.late = True
    monkeypatch.setattr(sglang_worker, "_timer_for", lambda name: CudaTimer(device))

    written = []

    def read(scheduler):
        scheduler._specscope._recorder.flush()  # its buffer is not in question here
        written.append(len(engine.ring().rounds))

    ring = engine.serve(
        engine.request("a", max_new_tokens=400), accepts=lambda req: 0, events={350: read}
    )

    assert len(ring.rounds) == 399
    assert written[0] > 250
    assert all(r.verify_us != r.verify_us for r in ring.rounds)
    assert ring.fault == ""


@pytest.mark.parametrize("overlap", [False, True])
def test_an_idle_engine_holds_back_no_round_though_its_device_never_answers(
    engine, monkeypatch, overlap
):
    device = Device(engine.hands)
    device.late = True
    monkeypatch.setattr(sglang_worker, "_timer_for", lambda name: CudaTimer(device))
    idle = []

    engine.serve(
        engine.request("a", max_new_tokens=8),
        accepts=lambda req: 0,
        overlap=overlap,
        events={40: lambda s: idle.append(engine.ring())},
    )

    (ring,) = idle  # as a sidecar sees it while the engine lives
    assert (len(ring.rounds), len(ring.ends), ring.ended) == (7, 1, False)


def test_rounds_are_seen_while_their_request_waits_and_nothing_runs(engine):
    stalled = []

    def stall(scheduler):
        """No room for the only request's cache, and none for the next turns."""
        (req,) = scheduler.running
        scheduler.retract(req)
        scheduler.waiting_queue.remove(req)
        stalled.append(req)

    def resume(scheduler):
        stalled.append(engine.ring())
        scheduler.waiting_queue.append(stalled[0])

    ring = engine.serve(
        engine.request("a", max_new_tokens=8), accepts=lambda req: 0, events={5: stall, 9: resume}
    )

    assert (len(stalled[1].rounds), len(stalled[1].ends)) == (3, 0)
    assert (len(ring.rounds), len(ring.ends)) == (6, 1)
