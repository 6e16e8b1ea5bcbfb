"""A sidecar reduced to its stream: greets, sends, collects what comes down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from waiting import PATIENCE_S

from specscope_agent import telemetry_pb2 as wire
from specscope_agent.channel import Security
from specscope_agent.telemetry_pb2_grpc import TelemetryStub

SOURCE = ("r0", "b0")


def hello(*sources: tuple[str, str], policy: int = 0, takes_acks: bool = False) -> Any:
    """The first message."""
    return wire.FromAgent(
        hello=wire.Hello(
            agent_version="test",
            schema_version=1,
            policy=policy,
            takes_acks=takes_acks,
            sources=[wire.Source(replica=r, boot=b) for r, b in sources or [SOURCE]],
        )
    )


def exchange(
    port: int,
    batches: Iterable[Any],
    *,
    sources: Sequence[tuple[str, str]] = (SOURCE,),
    security: Security | None = None,
    token: str = "",
    takes_acks: bool = False,
) -> list[Any]:
    """Greet, send the batches, and return all that came down until the service ended."""
    greeting = hello(*sources, takes_acks=takes_acks)
    messages = [greeting, *(wire.FromAgent(batch=batch) for batch in batches)]
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with (security or Security()).channel(f"127.0.0.1:{port}") as channel:
        stub = TelemetryStub(channel)
        return list(stub.Publish(iter(messages), timeout=PATIENCE_S, metadata=metadata))


def resume(messages: Sequence[Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """Position by source, of the first Resume."""
    first = next(message.resume for message in messages if message.HasField("resume"))
    return {(p.source.replica, p.source.boot): (p.number, p.next_seq) for p in first.positions}


def acknowledged(messages: Sequence[Any]) -> list[int]:
    """Batch numbers, in the order of their acknowledgements."""
    return [ack.number for ack in acks(messages)]


def refused(messages: Sequence[Any]) -> int:
    """Rows that were refused, over all acknowledgements."""
    return sum(ack.refused_rows for ack in acks(messages))


def acks(messages: Sequence[Any]) -> list[Any]:
    """Acknowledgements, one in a message or several."""
    return [
        ack
        for message in messages
        for ack in ([message.ack] if message.HasField("ack") else message.acks.acks)
    ]
