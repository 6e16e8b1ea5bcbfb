"""Marks become durations; the event timer is checked against events that this machine can make."""

import pytest
import torch

from specscope.engine.decode.timing import (
    LAUNCH,
    PARTS,
    CudaTimer,
    EventTimer,
    HostTimer,
    InGraph,
    timer_for,
)


class Event:
    """A CUDA event's interface over a clock that a test moves; passes when `passed` says so."""

    now_us = 0
    made = 0
    passed = True

    def __init__(self, enable_timing, external=False):
        assert enable_timing
        Event.made += 1

    def record(self):
        self.at = Event.now_us

    def query(self):
        return Event.passed

    def elapsed_time(self, later):
        return 1e-3 * (later.at - self.at)


class Clock:
    """The host's, which the test moves too."""

    def monotonic_ns(self):
        return 1000 * Event.now_us

    unix_ns = monotonic_ns


@pytest.fixture
def events(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    Event.now_us, Event.made, Event.passed = 0, 0, True


TIMERS = pytest.mark.parametrize("timer_of", [lambda: HostTimer(Clock()), CudaTimer])


def a_round(timer, after_idle=False):
    timer.begin(after_idle)
    for name in ("draft", "verify", "sample"):
        with timer.part(name):
            Event.now_us += 2000
    Event.now_us += 500
    with timer.part("sample"):
        Event.now_us += 1000
    return timer.end()


@TIMERS
def test_parts_are_told_apart_and_add_up_to_the_wall(timer_of, events):
    measured = a_round(timer_of(), after_idle=True)

    assert measured.ready()
    durations = measured.read()
    assert set(durations.parts) == {*PARTS, LAUNCH}
    assert durations.parts == pytest.approx(
        {
            "prefill": 0,
            "catchup": 0,
            "draft": 2000,
            "verify": 2000,
            "sample": 3000,
            LAUNCH: 0,
        }
    )
    assert (durations.wall, durations.idle) == pytest.approx((7500, 500))


@TIMERS
def test_the_time_between_two_rounds_is_the_laters_unless_the_loop_rested(timer_of, events):
    timer = timer_of()
    a_round(timer, after_idle=True).read()

    Event.now_us += 20_000
    busy = a_round(timer).read()
    Event.now_us += 20_000
    rested = a_round(timer, after_idle=True).read()

    assert (busy.wall, busy.idle) == pytest.approx((27_500, 20_500))
    assert (rested.wall, rested.idle) == pytest.approx((7500, 500))


def test_events_are_used_again_and_never_while_they_are_needed(events):
    timer = CudaTimer()
    first = a_round(timer, after_idle=True)
    second = a_round(timer)
    walls = [first.read().wall, second.read().wall]
    made = Event.made

    for turn in range(20):
        Event.now_us += turn
        walls.append(a_round(timer).read().wall)

    assert walls == pytest.approx([7500, 7500, *(7500 + turn for turn in range(20))])
    assert Event.made <= made + 1


def test_a_round_is_not_ready_before_its_last_event_has_passed(events):
    measured = a_round(CudaTimer(), after_idle=True)
    Event.passed = False

    assert not measured.ready()


def a_graph_round(timer, inside):
    """The graph's first node runs a while after its launch."""
    timer.begin(after_idle=True)
    Event.now_us += 300
    with timer.part("verify"):
        Event.now_us += 20
        with timer.part(LAUNCH):
            Event.now_us += 400
            for mark in inside.marks:
                mark.start.record()
                Event.now_us += 2000
                mark.stop.record()
            timer.replayed(inside)
    return timer.end()


def captured_marks():
    capturing = EventTimer(external=True)
    for name in ("verify", "sample"):
        with capturing.part(name):
            pass
    return InGraph(capturing.marks)


def test_what_a_graph_ran_is_told_from_what_its_launch_left_idle(events):
    durations = a_graph_round(CudaTimer(), captured_marks()).read()

    parts = {name: took for name, took in durations.parts.items() if took}
    # Copying the inputs in belongs to the part around the launch.
    assert parts == pytest.approx({"verify": 2020, "sample": 2000, LAUNCH: 400})
    assert durations.gaps == pytest.approx({"verify": 300})
    assert (durations.wall, durations.idle) == pytest.approx((4720, 700))


def test_events_in_a_graph_are_unread_until_their_round_is_and_never_pooled(events):
    timer, inside = CudaTimer(), captured_marks()

    measured = a_graph_round(timer, inside)
    assert inside.unread
    measured.read()

    assert not inside.unread
    own = {id(mark.start) for mark in inside.marks} | {id(mark.stop) for mark in inside.marks}
    assert own.isdisjoint(map(id, timer.pool))


@TIMERS
def test_a_part_within_another_is_not_counted_twice(timer_of, events):
    timer = timer_of()
    timer.begin(after_idle=True)
    with timer.part("draft"):
        Event.now_us += 2000
        with timer.part(LAUNCH):
            Event.now_us += 500
            with timer.part("draft"):
                Event.now_us += 3000

    durations = timer.end().read()

    assert (durations.parts["draft"], durations.parts[LAUNCH]) == pytest.approx((5000, 500))
    assert (durations.wall, durations.idle) == pytest.approx((5500, 500))


@TIMERS
def test_the_gap_before_each_part_is_told(timer_of, events):
    durations = a_round(timer_of(), after_idle=True).read()

    assert durations.gaps == pytest.approx({"draft": 0, "verify": 0, "sample": 500})


def test_a_cpu_is_timed_by_the_host():
    assert isinstance(timer_for("cpu"), HostTimer)
    assert isinstance(timer_for("cuda:1"), CudaTimer)
