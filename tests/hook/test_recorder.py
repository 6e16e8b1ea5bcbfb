"""The recorder: what goes in comes out, and nothing ever goes into the engine."""

import inspect
import logging
import math
import threading
from array import array

import numpy as np
import pytest
from hook_fakes import REQUEST_FIELDS, ROUND_FIELDS, ManualClock, a_boot, a_round, drained
from hypothesis import given
from hypothesis import strategies as st

from specscope_hook.admission import Admission
from specscope_hook.payload import decode
from specscope_hook.recorder import UNKNOWN_U32, Recorder
from specscope_hook.ring import NAME_ARM, NAME_CLASS, OTHER, Ring, RingReader


class Rig:
    """A ring with both ends, a recorder and a clock that is wound by hand."""

    def __init__(self, directory, ring_bytes=1 << 16):
        self.clock = ManualClock()
        self.ring = Ring.create(directory / "a.ring", a_boot(), ring_bytes)
        self.recorder = Recorder(self.ring, salt="salt", clock=self.clock)
        self.reader = RingReader.open(self.ring.path)

    def records(self):
        return [decode(record) for record in drained(self.reader)[0]]


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


ARRAYS = ("requests", "contexts", "classes", "k", "accepted", "emitted", "ends")


@st.composite
def rounds(draw):
    batch = draw(st.integers(0, 40))
    limits = {"requests": 2**64 - 1, "contexts": 2**32 - 1}
    values = {
        name: draw(st.lists(st.integers(0, limits.get(name, 255)), min_size=batch, max_size=batch))
        for name in ARRAYS
    }
    times = st.floats(0, 1e6, width=32)
    for name in ("wall_us", "draft_us", "verify_us", "sample_us", "idle_us", "catchup_us"):
        values[name] = draw(times)
    for name in ("waiting", "prefill_tokens", "padded_tokens", "invalid"):
        values[name] = draw(st.integers(0, 2**32 - 1))
    return values | {"started_at": draw(st.integers(0, 2**62)), "preempted": 3, "prefill_us": 1.5}


@given(rounds())
def test_every_value_of_a_round_survives_the_ring(tmp_path_factory, values):
    rig = Rig(tmp_path_factory.mktemp("ring"))

    rig.recorder.round(**values)

    (record,) = rig.records()
    for name, value in values.items():
        assert getattr(record, name) == value, name


@pytest.mark.parametrize("batch", [1, 16, 17, 256])
def test_lists_arrays_and_numpy_write_the_same_bytes(rig, batch):
    plain = a_round(batch)
    types = {"requests": "Q", "contexts": "I"}
    as_arrays = {name: array(types.get(name, "B"), plain[name]) for name in ARRAYS}
    as_numpy = {name: np.asarray(value) for name, value in as_arrays.items()}

    for values in (plain, plain | as_arrays, plain | as_numpy):
        rig.recorder.round(**values)

    first, second, third = (record.payload for record in drained(rig.reader)[0])
    assert first == second == third


def test_a_block_marks_the_rounds_and_requests_in_it(rig):
    rig.recorder.block(3, 7, "k4")
    rig.clock.pass_ms(250)
    rig.recorder.round(**a_round())
    handle = rig.recorder.admitted(request=1, class_=0, prompt_tokens=5)
    rig.recorder.block(3, 8, "k0")
    rig.recorder.ended(handle, output_tokens=9, e2e_ms=1.0)
    rig.recorder.block(0, 0, "")
    rig.recorder.round(**a_round())

    inside, admitted, ended, outside = rig.records()
    arms = rig.reader.names(NAME_ARM)
    assert (inside.policy, inside.pair, arms[inside.arm], inside.block_age_ms) == (3, 7, "k4", 250)
    assert (admitted.pair, admitted.last_pair, admitted.reason) == (7, 0, 0)
    assert math.isnan(admitted.e2e_ms)
    assert (ended.pair, arms[ended.arm], ended.last_pair, ended.output_tokens) == (7, "k4", 8, 9)
    assert (outside.policy, outside.pair, outside.arm, outside.block_age_ms) == (0, 0, OTHER, 0)


def test_a_round_that_is_written_late_belongs_to_the_block_that_it_ran_in(rig):
    rig.recorder.block(3, 7, "k4")
    mark = rig.recorder.mark
    rig.recorder.block(3, 7, "k0")

    rig.recorder.round(**a_round(), mark=mark)

    (record,) = rig.records()
    assert (record.pair, rig.reader.names(NAME_ARM)[record.arm]) == (7, "k4")


def test_what_is_not_known_is_not_zero(rig):
    rig.recorder.round(**a_round())
    rig.recorder.admitted(request=1, class_=0, prompt_tokens=5)

    round_, request = rig.records()

    assert all(
        math.isnan(getattr(round_, name))
        for name in ("draft_us", "verify_us", "sample_us", "idle_us", "catchup_us", "prefill_us")
    )
    assert request.cached_tokens == request.requested_output == 2**32 - 1


def test_the_order_of_a_request_is_that_of_its_record(rig):
    numbers = {name: index + 1 for index, name in enumerate(REQUEST_FIELDS)}
    declared = Admission.__slots__
    rig.clock.now_ns = numbers["admitted_at"] - rig.clock.offset_ns
    handle = Admission(**{name: numbers[name] for name in declared})
    rig.recorder.block(1, numbers["last_pair"], "")
    del numbers["last_pair"]

    later = set(numbers) - set(declared)
    rig.recorder.ended(handle, **{name: numbers[name] for name in later})

    (record,) = rig.records()
    assert {name: getattr(record, name) for name in numbers} == numbers


def test_the_recorder_asks_for_every_column_of_a_round():
    asked = set(inspect.signature(Recorder.round).parameters) - {"self", "mark", "ended_ns"}

    assert asked == set(ROUND_FIELDS) - {"policy", "pair", "arm", "block_age_ms"}


def test_a_hash_depends_on_the_salt_and_on_nothing_else(rig):
    other = Recorder(rig.ring, salt=b"other")

    assert rig.recorder.request_hash("a") == rig.recorder.request_hash("a")
    assert rig.recorder.request_hash("a") != rig.recorder.request_hash("b")
    assert rig.recorder.request_hash("a") != other.request_hash("a")
    assert rig.recorder.request_hash("\udcff") != 0
    assert rig.recorder.content_hash([1, 2], "a") == rig.recorder.content_hash((1, 2), "a")
    assert rig.recorder.content_hash([1, 2], "a") != rig.recorder.content_hash([1, 2], "b")
    assert rig.recorder.content_hash([1, 2]) != rig.recorder.content_hash([12])
    assert rig.recorder.content_hash([1, 2]) != other.content_hash([1, 2])


def test_a_request_without_a_label_is_unlabelled(rig):
    rig.recorder.class_id("")

    assert rig.reader.names(NAME_CLASS) == {0: "unlabelled"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": [999, 0]},
        {"k": [1]},
        {"requests": None},
        {"contexts": [-1, 0]},
        {"waiting": -1},
        {"wall_us": "soon"},
        {"emitted": ["x", "y"]},
    ],
    ids=str,
)
def test_a_wrong_round_detaches_the_hook_once_and_raises_nothing(rig, caplog, wrong):
    with caplog.at_level(logging.ERROR):
        rig.recorder.round(**a_round() | wrong)
        rig.recorder.round(**a_round() | wrong)
        rig.recorder.round(**a_round())

    assert "recording a round" in rig.reader.fault_text
    assert not rig.recorder.on
    assert rig.records() == []
    assert len(caplog.records) == 1


def test_arrays_of_a_large_round_that_differ_in_length_are_a_fault(rig):
    rig.recorder.round(**a_round(64) | {"k": [1] * 63})

    assert "differ in length" in rig.reader.fault_text


def test_a_detached_recorder_takes_every_call(rig):
    rig.recorder.detach("for the test")

    rig.recorder.round(**a_round())
    rig.recorder.block(1, 1, "k4")
    handle = rig.recorder.admitted(request=1, class_=rig.recorder.class_id("a"), prompt_tokens=1)
    rig.recorder.ended(handle, output_tokens=1)

    assert handle is None
    assert rig.recorder.class_id("b") == rig.recorder.adapter_id("c") == OTHER
    assert rig.records() == []
    assert rig.reader.fault_text == "for the test"


def test_a_ring_that_is_gone_is_survived(rig):
    rig.ring.close()

    rig.recorder.round(**a_round())
    handle = rig.recorder.admitted(request=1, class_=0, prompt_tokens=1)
    rig.recorder.ended(handle, output_tokens=1)
    rig.recorder.detach("late")


def test_a_full_ring_is_no_fault(tmp_path):
    rig = Rig(tmp_path, 4096)

    for _ in range(100):
        rig.recorder.round(**a_round(8))

    assert rig.recorder.on
    assert rig.reader.dropped > 0


def test_what_a_client_asks_for_is_no_fault_however_much_it_is(rig):
    class_ = rig.recorder.class_id("half \ud800 a pair")
    other = rig.recorder.class_id(7)
    rig.recorder.admitted(
        request=1, class_=class_, prompt_tokens=3, requested_output=10**12,
        temperature=1e300, top_p=-1e300,
    )  # fmt: skip

    (request,) = rig.records()
    assert rig.recorder.on
    assert (class_, other) == (0, 1)
    assert request.requested_output == UNKNOWN_U32  # as good as no limit
    assert request.temperature == pytest.approx(3.4e38)
    assert request.top_p == pytest.approx(-3.4e38)


def test_a_clock_that_is_put_back_changes_no_duration_and_no_order(rig):
    rig.recorder.block(3, 7, "k4")
    for back_ms in (0, 3_600_000, 0):
        rig.clock.offset_ns -= back_ms * 1_000_000
        rig.clock.pass_ms(2)
        rig.recorder.round(**a_round() | {"started_at": rig.clock.unix_ns()})

    records = rig.records()
    assert [r.block_age_ms for r in records] == [2, 4, 6]
    assert records[1].started_at < records[0].started_at
    assert [r.seq for r in drained(rig.reader)[0]] == [1, 2, 3]


def test_the_largest_batch_is_recorded_and_one_more_is_a_fault(tmp_path):
    rig = Rig(tmp_path, 1 << 22)
    most = 0xFFFF

    rig.recorder.round(**a_round(most))

    (record,) = rig.records()
    assert (len(record.requests), record.requests[-1]) == (most, most)
    rig.recorder.round(**a_round(most + 1))
    assert "recording a round" in rig.reader.fault_text


def in_a_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_a_second_thread_detaches_once_and_the_first_ones_records_are_kept(rig, caplog):
    rig.recorder.admitted(request=1, class_=0, prompt_tokens=1)
    rig.recorder.round(**a_round())

    for _ in range(2):
        in_a_thread(lambda: rig.recorder.round(**a_round()))
    unwritten = rig.reader.next_seq
    rig.recorder.round(**a_round())

    assert not rig.recorder.on
    assert "second thread" in rig.reader.fault_text
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    assert unwritten <= rig.reader.next_seq == 3
    assert len(rig.records()) == 2


def test_threads_that_take_turns_claim_the_recorder(rig):
    def turn():
        rig.recorder.claim()
        rig.recorder.round(**a_round())

    for _ in range(3):
        in_a_thread(turn)
    turn()

    assert rig.recorder.on
    assert len(rig.records()) == 4


def test_what_is_written_while_a_request_runs_waits_and_its_end_does_not(rig, monkeypatch):
    monkeypatch.setattr("specscope_hook.ring.FLUSH_NS", 1 << 60)
    rig.recorder.round(**a_round())  # nothing runs: seen at once
    alone = rig.reader.next_seq - 1

    handle = rig.recorder.admitted(request=1, class_=0, prompt_tokens=1)
    rig.recorder.round(**a_round())
    waiting = rig.reader.next_seq - 1
    rig.recorder.flush()
    flushed = rig.reader.next_seq - 1
    rig.recorder.round(**a_round())
    rig.recorder.ended(handle, output_tokens=1)
    ended = rig.reader.next_seq - 1

    assert (alone, waiting, flushed, ended) == (1, 1, 3, 5)
