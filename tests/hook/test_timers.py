"""Timers: parts of a step on the host's clock, and on a device that answers late."""

import math

import numpy as np
import pytest
from hook_fakes import ManualClock

from specscope_hook.timers import CudaTimer, HostTimer, Part, StepReader


def test_a_step_is_split_into_its_parts_and_the_time_between_them():
    clock = ManualClock()
    timer = HostTimer(clock)

    for tag in (1, 2):
        for part, ms in ((Part.VERIFY, 5), (Part.SAMPLE, 2), (Part.DRAFT, 3)):
            timer.open(part)
            clock.pass_ms(ms)
            timer.close(part)
            clock.pass_ms(1)
        timer.seal(tag)
        clock.pass_ms(4)

    first, second = timer.resolved()
    assert (first.tag, first.draft_us, first.verify_us, first.sample_us) == (1, 3000, 5000, 2000)
    assert math.isnan(first.idle_us)
    assert (second.tag, second.verify_us, second.idle_us) == (2, 5000, 7000)
    assert timer.resolved() == []


def test_a_part_that_opens_twice_is_added_up_and_one_that_never_did_is_unknown():
    clock = ManualClock()
    timer = HostTimer(clock)

    for _ in range(2):
        timer.open(Part.DRAFT)
        clock.pass_ms(1)
        timer.close(Part.DRAFT)
    timer.close(Part.SAMPLE)
    timer.seal(1)

    (step,) = timer.resolved()
    assert step.draft_us == 2000
    assert math.isnan(step.verify_us)
    assert math.isnan(step.sample_us)


class Device:
    """A stream that executes what was recorded when it is told to, in order.

    It stands for `torch.cuda`, of which the timer uses three things; no GPU is at hand.
    """

    def __init__(self):
        self.now_ms = 0.0
        self.done_ms = -1.0
        self.capturing = False
        self.made = 0
        device = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing
                device.made += 1
                self.at_ms = None

            def record(self):
                self.at_ms = device.now_ms

            def query(self):
                return self.at_ms <= device.done_ms

            def elapsed_time(self, later):
                assert self.query()
                assert later.query(), "asked for the time of an event that has not happened"
                return later.at_ms - self.at_ms

            def synchronize(self):
                raise AssertionError("the hook waited for the device")

        self.Event = Event

    @property
    def cuda(self):
        return self

    def is_current_stream_capturing(self):
        return self.capturing


def step(timer, device, tag, verify=5.0, sample=2.0, draft=3.0, gap=1.0):
    device.now_ms += gap
    for part, ms in ((Part.VERIFY, verify), (Part.SAMPLE, sample), (Part.DRAFT, draft)):
        timer.open(part)
        device.now_ms += ms
        timer.close(part)
    timer.seal(tag)


@pytest.fixture
def device():
    return Device()


def test_a_step_is_known_only_once_the_device_has_finished_it(device):
    timer = CudaTimer(device, events=32)
    step(timer, device, 1)
    step(timer, device, 2)

    device.done_ms = 10.9
    early = timer.resolved()
    device.done_ms = 11.0
    first = timer.resolved()
    device.done_ms = 22.0
    second = timer.resolved()

    assert early == []
    assert [(s.tag, s.draft_us, s.verify_us, s.sample_us) for s in first] == [(1, 3000, 5000, 2000)]
    assert math.isnan(first[0].idle_us)
    assert (second[0].tag, second[0].idle_us) == (2, 1000)


def test_events_are_made_once_and_used_again(device):
    timer = CudaTimer(device, events=16)

    for tag in range(100):
        step(timer, device, tag)
        device.done_ms = device.now_ms
        (known,) = timer.resolved()
        assert known.tag == tag
        assert known.verify_us == 5000

    assert device.made == 16
    assert timer.missed == 0


@pytest.mark.parametrize(
    ("at_ms", "wanted"),
    [
        ((0, 5, 6, 8, 11, 12), (3000, 5000, 3000)),  # a draft interrupts the sampling
        ((0, 5, 6, None, None, 12), (math.nan, 5000, 6000)),
        ((0, None, None, None, None, None), (math.nan,) * 3),
    ],
)
def test_a_steps_moments_are_its_parts_and_their_events_are_used_again(device, at_ms, wanted):
    timer, reader, host = CudaTimer(device, events=16), StepReader(), HostTimer()
    for tag in range(40):
        began, moments = device.now_ms, []
        for at in at_ms:
            device.now_ms = began if at is None else began + at
            moments.append(None if at is None else timer.moment())
        timer.seal(tag, moments)
        device.now_ms = device.done_ms = began + 20
        (step,) = timer.resolved()
        assert step[1:4] == pytest.approx(wanted, nan_ok=True)
        assert tag == 0 or math.isnan(wanted[1]) or step.idle_us == 20_000 - np.nansum(wanted)

    host.seal(1, [None if at is None else at * 1_000_000 for at in at_ms])
    assert reader.read(*host.taken())[1:4] == pytest.approx(wanted, nan_ok=True)
    assert timer.missed == 0


def test_an_empty_pool_makes_a_step_unknown_and_never_wrong(device):
    timer = CudaTimer(device, events=8)
    step(timer, device, 1)
    step(timer, device, 2)
    device.done_ms = device.now_ms

    known = timer.resolved()
    step(timer, device, 3)
    device.done_ms = device.now_ms
    after = timer.resolved()

    assert [s.tag for s in known] == [1, 2]
    assert known[0].verify_us == 5000
    assert math.isnan(known[1].verify_us)
    assert timer.missed == 1
    assert after[0].verify_us == 5000


def test_nothing_is_recorded_into_a_graph_that_is_being_captured(device):
    timer = CudaTimer(device, events=8)
    device.capturing = True

    step(timer, device, 1)
    (known,) = timer.resolved()

    assert math.isnan(known.verify_us)
    assert timer.missed == 1
