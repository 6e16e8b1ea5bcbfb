"""An engine followed by the forward passes that it publishes; SGLang's own in tests/sglang."""

import itertools
import time

import msgspec
import pytest
import zmq

from specscope_agent.loss import rows_table
from specscope_agent.settings import AgentSettings
from specscope_agent.sources.forward_passes import ForwardPasses, Subscription, Unreadable
from specscope_agent.sources.kinds import KINDS
from specscope_agent.sources.sums import INTERVAL_NS
from specscope_hook.ring import Cursor


def message(number, ms=0.0, decoding=0, contexts=0, prefill=(0, 0), queued=0, **more):
    """A message as the engines send it, with what we do not read."""
    return msgspec.msgpack.encode(
        {
            "version": 1,
            "worker_id": "w1",
            "dp_rank": 0,
            "counter_id": number,
            "wall_time": ms / 1e3,
            "scheduled_requests": {
                "num_prefill_requests": prefill[0],
                "sum_prefill_tokens": prefill[1],
                "var_prefill_length": 0.0,
                "sum_prefill_kv_tokens": 0,
                "num_decode_requests": decoding,
                "sum_decode_kv_tokens": contexts,
                "var_decode_kv_tokens": 0.5,
            },
            "queued_requests": {
                "num_prefill_requests": queued,
                "sum_prefill_tokens": 7,
                "num_decode_requests": 0,
            },
            **more,
        }
    )


class Engine:
    """What it has published and nobody has received yet."""

    def __init__(self):
        self.now_ns = 1_700_000_000_000_000_000
        self.messages = []

    def received(self):
        messages, self.messages = self.messages, []
        return messages

    def followed(self):
        return ForwardPasses("tcp://h:1", "r0", receive=self.received, now_ns=lambda: self.now_ns)


def harvested(source, engine, *messages):
    """The next interval's values, by field, and its harvest."""
    engine.messages += messages
    assert source.poll(lambda _: Cursor()) is None
    engine.now_ns += INTERVAL_NS
    harvest = source.poll(lambda _: Cursor())
    assert source.poll(lambda _: Cursor()) is harvest
    source.kept()
    rows_table("device", harvest.rows["device"])  # the stored schema takes them
    return {row["field"]: row["value"] for row in harvest.rows["device"]}, harvest


def test_rows_are_the_sums_of_an_interval_and_what_no_message_says_is_unknown():
    engine = Engine()
    source = engine.followed()
    first, harvest = harvested(
        source,
        engine,
        message(4, 10.0, prefill=(1, 64), queued=3),
        message(5, 6.0, decoding=2, contexts=300),
        message(6, 7.0, decoding=2, contexts=310, prefill=(1, 50), queued=1),
    )
    second, later = harvested(source, engine, message(7))

    assert first == {
        "engine_passes": 3,
        "engine_passes_missed": 0,
        "engine_pass_ms": 23.0,
        "engine_request_rounds": 4,
        "engine_context_tokens": 610,
        "engine_prefill_tokens": 114,
        "engine_running": 3,
        "engine_waiting": 1,
        "engine_drafts": None,
        "engine_proposed": None,
        "engine_accepted": None,
        "engine_generation_tokens": None,
    }
    assert all(bool(row["reason"]) == (row["value"] is None) for row in harvest.rows["device"])
    assert (second["engine_passes"], second["engine_running"]) == (0, 0)
    assert later.source == harvest.source
    assert later.cursor.position > harvest.cursor.position
    assert {row["window_ms"] for row in later.rows["device"]} == {10_000}


def test_messages_that_did_not_come_are_counted_by_their_numbers():
    engine = Engine()
    source = engine.followed()
    first, _ = harvested(source, engine, message(3, 5.0), message(6, 5.0))
    second, _ = harvested(source, engine, message(8, 5.0))

    assert (first["engine_passes"], first["engine_passes_missed"]) == (2, 2)
    assert (second["engine_passes"], second["engine_passes_missed"]) == (1, 1)


@pytest.mark.parametrize("again", [{"number": 0}, {"number": 9, "worker_id": "w2"}])
def test_another_start_of_the_engine_is_another_boot_and_sums_are_not_mixed(again):
    engine = Engine()
    source = engine.followed()
    engine.messages = [message(7, 5.0, decoding=1), message(8, 5.0, decoding=1)]
    engine.messages += [message(**again, ms=3.0, decoding=4)]

    before = source.poll(lambda _: Cursor())
    source.kept()
    engine.now_ns += 1
    values, after = harvested(source, engine)

    assert before.source.boot != after.source.boot == after.boot["boot"]
    sums = {row["field"]: row["value"] for row in before.rows["device"]}
    assert (sums["engine_request_rounds"], sums["engine_passes"]) == (2, 2)
    assert (values["engine_request_rounds"], values["engine_passes_missed"]) == (4, 0)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode({"version": 1}),
        message(6, version=2),
        message(6, scheduled_requests=None),
        message(6, wall_time="long"),
    ],
)
def test_what_cannot_be_read_is_missed_and_said_once(payload, caplog):
    engine = Engine()
    source = engine.followed()
    engine.messages = [payload]
    assert source.poll(lambda _: Cursor()) is None
    assert source.missing
    values, _ = harvested(source, engine, message(5, 1.0), payload, message(7, 1.0))

    assert (values["engine_passes"], values["engine_passes_missed"]) == (2, 1)
    assert (
        sum("forward-passes" in r.message and "stored" not in r.message for r in caplog.records)
        == 1
    )


@pytest.mark.parametrize("where", ["http://h/metrics", "tcp://", "tcp://h", "ipc://", "", "/tmp/x"])
def test_only_an_address_of_zmq_is_followed(where):
    with pytest.raises(Unreadable, match=r"\S"):
        Subscription(where).received()


def test_messages_of_a_real_publisher_are_received_and_a_late_subscriber_misses_none_later(
    tmp_path,
):
    where = f"ipc://{tmp_path / 'fpm.0'}"
    setting = AgentSettings.from_env(
        {"SPECSCOPE_SOURCES": f"r7=forward-passes:{where}", "SPECSCOPE_SPOOL": str(tmp_path)}
    ).sources[0]
    source = KINDS[setting.kind].follow(setting.where, setting.replica)
    context = zmq.Context()
    publisher = context.socket(zmq.PUB)
    assert source.poll(lambda _: Cursor()) is None
    publisher.bind(where)
    numbers = itertools.count()
    deadline = time.monotonic() + 20
    while source.missing and time.monotonic() < deadline:
        number = next(numbers)
        publisher.send_multipart((b"", number.to_bytes(8, "big"), message(number, 2.0, 1, 10)))
        time.sleep(0.02)
        source.poll(lambda _: Cursor())
    first = next(numbers)
    for number in range(first, first + 500):
        publisher.send_multipart((b"", number.to_bytes(8, "big"), message(number, 2.0, 1, 10)))
    while source._last.number < first + 499 and time.monotonic() < deadline:
        source.poll(lambda _: Cursor())

    assert source._last.number == first + 499
    assert source._sums.missed == 0
    source.close()
    publisher.close(0)
    context.term()
