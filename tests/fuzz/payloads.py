"""Damaged messages of a stream, and what must hold of each: it is refused, or it is rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
from store.traffic import Traffic

from specscope.service.calls import Refused, parsed
from specscope.service.intake import ACCEPTED, admit
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.schemas import schema

NOW = 1_800_000_000 * 10**9


@cache
def seeds() -> tuple[bytes, ...]:
    """Whole messages of a stream, small enough to be damaged often."""
    traffic = Traffic(pairs=1, requests=2, output=4, started_at=NOW - 10**9)
    messages = [wire.FromAgent(batch=batch) for batch in traffic.messages()]
    messages.append(wire.FromAgent(hello=wire.Hello(sources=[wire.Source(replica="r0")])))
    for codec in ("zstd", None):
        rows = traffic.batches()[0]["round"]
        batch = wire.Batch(source=wire.Source(replica="r0", boot="b0"), number=1)
        batch.tables.add(name="round", arrow=_encoded(rows, codec))
        messages.append(wire.FromAgent(batch=batch))
    return tuple(message.SerializeToString() for message in messages)


def _encoded(rows: pa.Table, codec: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def damaged(draw: random.Random) -> bytes:
    """A message, or the Arrow within one, with bytes flipped, cut, doubled or replaced."""
    whole = draw.choice(seeds())
    if draw.random() < 0.3:
        return _spoil(whole, draw)
    message = wire.FromAgent.FromString(whole)
    for table in message.batch.tables:
        if draw.random() < 0.5:
            table.arrow = _spoil(table.arrow, draw)
        if draw.random() < 0.02:
            table.name = draw.choice([*ACCEPTED, "policy", "batch", "", "\0"])
    return bytes(message.SerializeToString())


def _spoil(data: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        if not spoilt:
            break
        at = draw.randrange(len(spoilt))
        change: Callable[[], Any] = draw.choice(
            (
                lambda at=at: spoilt.__setitem__(at, spoilt[at] ^ 1 << draw.randrange(8)),
                lambda at=at: spoilt.__setitem__(at, draw.choice((0, 1, 127, 128, 255))),
                lambda at=at: spoilt.__delitem__(slice(at, None)),
                lambda at=at: spoilt.__delitem__(slice(at, at + draw.randrange(1, 16))),
                lambda at=at: spoilt.__setitem__(
                    slice(at, at + 8),
                    draw.choice((-1, 1 << 62, 1 << 31, 7)).to_bytes(8, "little", signed=True),
                ),
                lambda at=at: spoilt.__setitem__(slice(at, at), spoilt[at : at + 64]),
            )
        )
        change()
    return bytes(spoilt)


def check(message: bytes) -> str:
    """Take it as the service does. Returns how it ended; raises if anything else happens."""
    try:
        batch = parsed(wire.FromAgent, message).batch
    except Refused as error:
        return error.code.name
    admitted = admit(batch, NOW)
    for name, rows in admitted.tables.items():
        assert name in ACCEPTED
        assert rows.schema == schema(name)
        rows.validate(full=True)
        for column, own in zip(("replica", "boot"), admitted.source, strict=True):
            if name != "loss" and column in rows.column_names:
                assert set(rows.column(column).to_pylist()) <= {own}
    return "refused in part" if admitted.refused else "rows"
