"""Checks of every call: the caller's right, a valid message, and names of the caller's replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from specscope.service.access import Access, Denied, Grant
from specscope.service.limits import MAX_NAME, MAX_SOURCES, MOST_NUMBER, MOST_SEQ
from specscope.store.ledger import Source
from specscope_agent import telemetry_pb2 as wire
from specscope_agent.sealed import intact


class Refused(Exception):
    """A refused stream or call: the gRPC code and the sentence for its caller."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def granted(access: Access, right: str, context: Any) -> Grant:
    """The caller's grant. Raises Refused if its token is unknown or lacks the right."""
    metadata = context.invocation_metadata() or ()
    credentials = [str(value) for key, value in metadata if key == "authorization"]
    try:
        return access.grant(right, *credentials)
    except Denied as error:
        denied, unknown = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
        raise Refused(denied if error.known else unknown, str(error)) from None


def parsed(kind: Any, request: bytes) -> Any:
    """Parse a message. Raises Refused for invalid bytes or a wrong checksum.

    gRPC itself would log a traceback for each.
    """
    try:
        message = kind.FromString(request)
    except DecodeError:
        text = f"no message of specscope.v1.{kind.DESCRIPTOR.name}"
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, text) from None
    if kind is wire.FromAgent and not intact(message, request):
        raise Refused(grpc.StatusCode.DATA_LOSS, "a message was damaged in transit")
    return message


def plausible(batch: Any) -> None:
    """Raise Refused for a batch with numbers that no sidecar can reach.

    Versions of rollups are sums of these numbers over all tenants, so a huge one would overflow
    them.
    """
    if not 0 < batch.number < MOST_NUMBER or not batch.first_seq <= batch.next_seq < MOST_SEQ:
        text = f"batch {batch.number} of records {batch.first_seq} to {batch.next_seq}"
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"there is no {text}")


def named(sources: Sequence[Any], grant: Grant) -> list[Source]:
    """The sources of a Hello. Raises Refused if one is not the caller's."""
    if len(sources) > MAX_SOURCES:
        text = f"a Hello of {len(sources)} sources; at most {MAX_SOURCES}"
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, text)
    found = [Source(source.replica, source.boot) for source in sources]
    for source in found:
        if not all(0 < len(name) <= MAX_NAME for name in source):
            text = f"a replica and a boot have names of 1 to {MAX_NAME} characters"
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, text)
        if not grant.may_name(source.replica):
            text = f"the token {grant.name!r} does not cover replica {source.replica!r}"
            raise Refused(grpc.StatusCode.PERMISSION_DENIED, text)
    return found
