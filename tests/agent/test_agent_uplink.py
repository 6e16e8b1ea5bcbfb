"""The uplink: what the service has is not sent again, and a pause between tries."""

from __future__ import annotations

import time

import pytest
from agent_support import Served
from google.protobuf.message import DecodeError
from waiting import until

from specscope_agent import telemetry_pb2 as wire
from specscope_agent.lane import MOST_UNACKNOWLEDGED
from specscope_agent.loss import Losses
from specscope_agent.sealed import intact, sealed
from specscope_agent.source import Source
from specscope_agent.spool import Spool
from specscope_agent.uplink import Uplink, _Session, pause_s
from specscope_agent.wire import encode
from specscope_hook.ring import Cursor

SOURCE = Source("r0", "b0")


@pytest.fixture
def served():
    served = Served()
    yield served
    served.service.acknowledge.set()
    served.stop()


@pytest.fixture
def spool(tmp_path):
    spool = Spool.open(tmp_path / "spool", 1 << 30)
    yield spool
    spool.close()


def fill(spool, count, source=SOURCE):
    for _ in range(count):
        last = spool.newest(source).cursor
        losses = Losses(source, 1)
        losses.add("ring", "ring_full", last.next_seq, 10)
        cursor = Cursor(last.position + 100, last.next_seq + 10)
        spool.add(source, cursor, encode({"loss": losses.table()}))


@pytest.fixture
def uplink(served, spool):
    links = []

    def start(on_policy=lambda number, json: None):
        links.append(Uplink(served.address, spool, on_policy))
        links[-1].start()
        return links[-1]

    yield start
    for link in links:
        link.close()


def test_batches_arrive_in_order_and_leave_the_spool(served, spool, uplink):
    fill(spool, 40)

    uplink()
    until(lambda: not spool.waiting(SOURCE))

    assert served.service.received == [(SOURCE, number) for number in range(1, 41)]
    batch = served.service.batches[SOURCE, 2]
    assert (batch.first_seq, batch.next_seq) == (11, 21)


def test_what_the_service_says_it_has_is_not_sent_again(served, spool, uplink):
    fill(spool, 10)
    for number in range(1, 8):
        served.service.batches[SOURCE, number] = wire.Batch(number=number, next_seq=number * 10 + 1)

    uplink()
    until(lambda: not spool.waiting(SOURCE))

    assert served.service.received == [(SOURCE, number) for number in (8, 9, 10)]


def test_a_spool_that_was_lost_does_not_hide_what_comes_after(served, spool, uplink):
    for number in range(1, 58):
        served.service.batches[SOURCE, number] = wire.Batch(number=number, next_seq=number * 7 + 1)
    fill(spool, 60)

    uplink()
    until(lambda: not spool.waiting(SOURCE))

    assert served.service.received == [(SOURCE, number) for number in range(58, 118)]


def test_only_a_few_batches_are_unacknowledged_at_a_time(served, spool, uplink):
    served.service.acknowledge.clear()
    fill(spool, MOST_UNACKNOWLEDGED + 20)

    uplink()
    until(lambda: len(served.service.received) == MOST_UNACKNOWLEDGED)
    time.sleep(0.3)

    assert len(served.service.received) == MOST_UNACKNOWLEDGED
    assert spool.waiting(SOURCE) == MOST_UNACKNOWLEDGED + 20


def test_what_was_sent_and_not_acknowledged_is_sent_again(served, spool, uplink):
    served.service.acknowledge.clear()
    fill(spool, 3)
    link = uplink()
    until(lambda: len(served.service.received) == 3)

    served.stop()
    served.service.acknowledge.set()
    served.start()
    until(lambda: link.counts.acknowledged == 3)

    assert not spool.waiting(SOURCE)
    assert served.service.received == [(SOURCE, n) for n in (1, 2, 3, 1, 2, 3)]


def test_a_source_that_appears_later_is_named_in_a_new_hello(served, spool, uplink):
    fill(spool, 1)
    uplink()
    until(lambda: not spool.waiting(SOURCE))

    other = Source("r1", "b9")
    fill(spool, 1, other)
    until(lambda: not spool.waiting(other))

    named = [[(s.replica, s.boot) for s in hello.sources] for hello in served.service.hellos]
    assert named == [[SOURCE], [SOURCE, other]]


def test_a_service_without_batches_to_send_still_hands_down_its_policy(served, spool, uplink):
    served.service.policy = wire.Policy(number=4, json='{"policy":4}')
    taken = []

    uplink(lambda number, json: taken.append((number, json)))
    until(lambda: taken)

    assert taken == [(4, '{"policy":4}')]


def test_an_address_where_nobody_listens_loses_nothing(served, spool, uplink):
    served.stop()
    fill(spool, 2)

    link = uplink()
    time.sleep(0.5)
    assert not link.counts.connected
    served.start()
    until(lambda: not spool.waiting(SOURCE))


def test_pauses_double_up_to_half_a_minute_and_differ():
    pauses = [pause_s(failures, 1.0) for failures in range(1, 12)]

    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert max(pauses) == 30.0
    assert pause_s(3, 0.0) == pause_s(3, 1.0) / 2
    assert pause_s(10_000, 1.0) == 30.0


def test_a_service_that_has_gone_back_in_time_is_sent_what_is_there(served, spool, uplink):
    fill(spool, 6)
    link = uplink()
    until(lambda: not spool.waiting(SOURCE))
    link.close()
    for number in range(4, 7):
        del served.service.batches[SOURCE, number]
    fill(spool, 2)

    uplink()
    until(lambda: not spool.waiting(SOURCE))

    assert [number for _, number in served.service.received] == list(range(1, 9))


def test_an_acknowledgement_of_what_was_not_sent_deletes_nothing(served, spool, uplink):
    fill(spool, MOST_UNACKNOWLEDGED + 3)
    served.service.acknowledge.clear()
    link = uplink()
    until(lambda: len(served.service.received) == MOST_UNACKNOWLEDGED)
    session = _Session(spool.sources)
    session.unacknowledged = {(SOURCE, 2)}

    for number in (MOST_UNACKNOWLEDGED + 3, 2, 2, 999):
        ack = wire.Ack(source=wire.Source(replica="r0", boot="b0"), number=number)
        link._take(session, wire.FromService(ack=ack))

    assert spool.waiting(SOURCE) == MOST_UNACKNOWLEDGED + 2
    assert link.counts.acknowledged == 1


def test_of_several_acknowledgements_in_a_message_each_deletes_its_batch_once(
    served, spool, uplink
):
    other = Source("r1", "b1")
    fill(spool, 4)
    fill(spool, 2, other)
    served.service.acknowledge.clear()
    link = uplink()
    until(lambda: len(served.service.received) == 6)
    session = _Session(spool.sources)
    session.unacknowledged = {(SOURCE, 1), (SOURCE, 2), (other, 1)}

    acks = [
        wire.Ack(source=wire.Source(**source._asdict()), number=number, refused_rows=3)
        for source, number in ((SOURCE, 1), (other, 1), (SOURCE, 2), (SOURCE, 2), (SOURCE, 3))
    ]
    link._take(session, wire.FromService(acks=wire.Acks(acks=acks)))

    assert (spool.waiting(SOURCE), spool.waiting(other)) == (2, 1)
    assert not session.unacknowledged
    assert (link.counts.acknowledged, link.counts.refused_rows) == (3, 9)


def test_a_fault_on_the_way_is_said_and_tried_again(served, spool, uplink, caplog):
    served.service.policy = wire.Policy(number=4, json="{}")
    taken = []

    def fails_once(number, json):
        taken.append(number)
        if len(taken) == 1:
            raise KeyError("planted")

    link = uplink(fails_once)
    until(lambda: len(taken) > 1)
    fill(spool, 1)
    until(lambda: not spool.waiting(SOURCE))

    assert link.thread.is_alive()
    assert "planted" in caplog.text


def test_a_flipped_bit_in_an_answer_or_a_batch_is_seen():
    source = wire.Source(replica="r0", boot="b0")
    for message in (
        wire.FromService(ack=wire.Ack(source=source, number=5)),
        wire.FromAgent(batch=wire.Batch(source=source, number=5, next_seq=9)),
    ):
        raw = sealed(message)

        assert intact(type(message).FromString(raw), raw)
        for bit in range(len(raw) * 8):
            flipped = bytearray(raw)
            flipped[bit // 8] ^= 1 << bit % 8
            try:
                read = type(message).FromString(bytes(flipped))
            except DecodeError:
                continue
            same = read.WhichOneof("message") and not read.HasField("check")
            # A flip in the tag of the check itself leaves the rest as it was.
            assert not intact(read, bytes(flipped)) or (same and bit // 8 == len(raw) - 5), bit
