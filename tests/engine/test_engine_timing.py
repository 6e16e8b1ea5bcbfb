"""Marks become durations; the event timer is checked against events that this machine can make."""

import time

import pytest
import torch

from specscope.engine.timing import PARTS, CudaTimer, HostTimer, timer_for


class Event:
    """A CUDA event's interface over the host's clock; passes when `now` says so."""

    made = 0
    passed = True

    def __init__(self, enable_timing):
        assert enable_timing
        Event.made += 1

    def record(self):
        self.at = time.perf_counter()

    def query(self):
        return Event.passed

    def elapsed_time(self, later):
        return 1e3 * (later.at - self.at)


@pytest.fixture
def events(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    Event.made, Event.passed = 0, True


def a_round(timer, after_idle=False):
    timer.begin(after_idle)
    for name in ("draft", "verify", "sample"):
        with timer.part(name):
            time.sleep(0.002)
    with timer.part("sample"):
        time.sleep(0.001)
    return timer.end()


@pytest.mark.parametrize("kind", [HostTimer, CudaTimer])
def test_parts_are_told_apart_and_add_up_to_the_wall(kind, events):
    timer = kind()

    measured = a_round(timer, after_idle=True)

    assert measured.ready()
    durations = measured.read()
    assert durations.parts["draft"] >= 2000
    assert durations.parts["sample"] >= 3000
    assert durations.parts["prefill"] == durations.parts["catchup"] == 0
    assert set(durations.parts) == set(PARTS)
    total = sum(durations.parts.values()) + durations.idle
    assert total == pytest.approx(durations.wall, rel=1e-6)


@pytest.mark.parametrize("kind", [HostTimer, CudaTimer])
def test_the_time_between_two_rounds_is_the_laters_unless_the_loop_rested(kind, events):
    timer = kind()
    a_round(timer, after_idle=True).read()

    time.sleep(0.02)
    busy = a_round(timer).read()
    time.sleep(0.02)
    began = time.perf_counter()
    rested = a_round(timer, after_idle=True).read()

    assert busy.idle > 20_000
    assert rested.wall <= 1e6 * (time.perf_counter() - began)


def test_events_are_used_again_and_never_while_they_are_needed(events):
    timer = CudaTimer()
    first = a_round(timer, after_idle=True)
    second = a_round(timer)
    walls = [first.read().wall, second.read().wall]
    made = Event.made

    for _ in range(20):
        before = time.perf_counter()
        walls.append(a_round(timer).read().wall)
        assert walls[-1] >= 7000
        assert walls[-1] <= 1e6 * (time.perf_counter() - before) + 1000

    assert Event.made <= made + 1


def test_a_round_is_not_ready_before_its_last_event_has_passed(events):
    measured = a_round(CudaTimer(), after_idle=True)
    Event.passed = False

    assert not measured.ready()


def test_a_cpu_is_timed_by_the_host():
    assert isinstance(timer_for("cpu"), HostTimer)
    assert isinstance(timer_for("cuda:1"), CudaTimer)
