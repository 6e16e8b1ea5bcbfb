"""Sampled requests as OpenTelemetry spans: one per request, and within it one per round.

No state is kept between batches. Identifiers are hashes of the request, so a round can be sent
before the end of its request and still has the right parent. The hash also decides the sampling, so
either all rounds of a request are exported or none.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from specscope_agent.origin import Origin
from specscope_agent.payloads import Rounds
from specscope_agent.source import Source
from specscope_agent.transpose import whole
from specscope_hook.columns import End, columns
from specscope_hook.records import RoundMeasures
from specscope_hook.ring import RawRecord

MOST_WAITING = 8192  # spans; a collector that is away costs spans, never memory
_ENDS = {int(end): end.name.lower() for end in End}
_PARTS = tuple(column.name for column in columns(RoundMeasures) if column.base == "f32")
_OF_A_REQUEST = (
    "class", "arm", "policy", "pair", "prompt_tokens", "cached_tokens", "requested_output",
    "output_tokens", "queue_ms", "prefill_ms", "ttft_ms", "decode_ms", "e2e_ms",
    "preemptions", "temperature", "top_p", "adapter", "reason",
)  # fmt: skip


class Spans:
    """Make spans from batches and pass them to an exporter."""

    def __init__(self, exporter: SpanExporter, share: float) -> None:
        """share: share of requests that become spans, 0 to 1"""
        self.made = 0
        self._below = int(share * 2**64)
        self._ids = _Ids()
        self._processor = BatchSpanProcessor(exporter, max_queue_size=MOST_WAITING)
        self._tracers: dict[Source, Tracer] = {}

    @classmethod
    def to(cls, endpoint: str, share: float) -> Spans:
        """Export by OTLP over gRPC; unencrypted unless the endpoint begins with https."""
        secure = endpoint.startswith("https://")
        return cls(OTLPSpanExporter(endpoint=endpoint, insecure=not secure), share)

    def add(
        self,
        origin: Origin,
        records: Sequence[RawRecord],
        tables: Mapping[str, pa.Table],
    ) -> None:
        """Spans of the sampled requests among a batch's records.

        origin: origin of the records
        tables: the rows of these records
        """
        if not self._below:
            return
        source = Source.of(origin.boot)
        rounds, _ = whole(records, origin.payloads)
        if rounds and "round" in tables:
            self._add_rounds(source, origin.payloads.rounds(rounds), tables["round"])
        if "request" in tables:
            self._add_requests(source, tables["request"])

    def close(self) -> None:
        """Flush the exporter."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _add_rounds(self, source: Source, rounds: Rounds, rows: pa.Table) -> None:
        for place in self._sampled(rounds.sequences["requests"]):
            row = int(rounds.row[place])
            scalars = rounds.scalars[row]
            at = {name: values[place].item() for name, values in rounds.sequences.items()}
            parts = {name: scalars[name].item() for name in _PARTS}
            seq = int(rounds.seq[row])
            attributes = {
                "seq": seq,
                "batch": int(rounds.batch[row]),
                "context": at["contexts"],
                "k": at["k"],
                "verified": at["verified"],
                "accepted": at["accepted"],
                "emitted": at["emitted"],
                "end": _ENDS.get(at["ends"]),
                "arm": rows.column("arm")[row].as_py(),
                **{name: None if math.isnan(value) else value for name, value in parts.items()},
                "bandwidth_bytes_s": _bandwidth(rows.column("model_bytes")[row].as_py(), parts),
            }
            started_at = int(scalars["started_at"])
            lasted_us = parts["wall_us"] if math.isfinite(parts["wall_us"]) else 0.0
            span = (started_at, started_at + int(lasted_us * 1e3))
            self._make(source, "round", at["requests"], seq, span, attributes)

    def _add_requests(self, source: Source, rows: pa.Table) -> None:
        for place in self._sampled(rows.column("request").to_numpy()):
            (row,) = rows.slice(place, 1).to_pylist()
            if row["ended_at"] is None:
                continue
            span = tuple(
                rows.column(name).cast(pa.int64())[place].as_py()
                for name in ("admitted_at", "ended_at")
            )
            attributes = {name: row[name] for name in _OF_A_REQUEST}
            self._make(source, "request", row["request"], None, span, attributes)

    def _sampled(self, requests: NDArray[np.uint64]) -> Iterable[int]:
        if self._below >= 2**64:
            return range(len(requests))
        return [int(i) for i in np.flatnonzero(requests < np.uint64(self._below))]

    def _make(
        self,
        source: Source,
        name: str,
        request: int,
        seq: int | None,
        span: Sequence[int],
        attributes: Mapping[str, Any],
    ) -> None:
        parent = SpanContext(
            _hash(16, *source, request), _hash(8, *source, request), True, TraceFlags(1)
        )
        context = None
        if seq is None:
            self._ids.next = (parent.trace_id, parent.span_id)
        else:
            self._ids.next = (parent.trace_id, _hash(8, *source, request, seq))
            context = set_span_in_context(NonRecordingSpan(parent))
        made = self._tracer(source).start_span(
            name,
            context,
            attributes={f"specscope.{n}": v for n, v in attributes.items() if v is not None},
            start_time=span[0],
        )
        made.end(span[1])
        self.made += 1

    def _tracer(self, source: Source) -> Tracer:
        if source not in self._tracers:
            resource = Resource.create(
                {"service.name": source.replica, "service.instance.id": source.boot}
            )
            provider = TracerProvider(
                resource=resource, id_generator=self._ids, shutdown_on_exit=False
            )
            provider.add_span_processor(self._processor)
            self._tracers[source] = provider.get_tracer("specscope")
        return self._tracers[source]


class _Ids(IdGenerator):
    """Return the given identifiers for the next span."""

    next = (0, 0)

    def generate_trace_id(self) -> int:
        return self.next[0]

    def generate_span_id(self) -> int:
        return self.next[1]


def _hash(size: int, *what: object) -> int:
    """A hash of `size` bytes, never 0."""
    text = "\0".join(map(str, what)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=size).digest(), "big") or 1


def _bandwidth(model_bytes: int | None, parts: Mapping[str, float]) -> float | None:
    """Bytes that the round had to move over its models' time; None if either is unknown."""
    ran_us = sum(parts[name] for name in ("draft_us", "verify_us"))
    if model_bytes is None or not ran_us > 0:
        return None
    return model_bytes / ran_us * 1e6
