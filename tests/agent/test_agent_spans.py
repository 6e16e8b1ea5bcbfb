"""Sampled requests as spans, received by a real collector over OTLP."""

from __future__ import annotations

from concurrent import futures

import grpc
import numpy as np
import pytest
from agent_support import Traffic, a_boot, ring_at
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc

from specscope_agent.cut import cut
from specscope_agent.rings import Rings
from specscope_agent.spans import Spans
from specscope_hook.recorder import Recorder
from specscope_hook.ring import Cursor


class Collector(otlp_grpc.TraceServiceServicer):
    def __init__(self):
        self.spans = []
        self.resources = []

    def Export(self, request, context):  # noqa: N802
        for resource in request.resource_spans:
            self.resources.append({a.key: value(a) for a in resource.resource.attributes})
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return otlp.ExportTraceServiceResponse()


def value(attribute):
    kind = attribute.value.WhichOneof("value")
    return getattr(attribute.value, kind)


def attributes(span):
    return {a.key.removeprefix("specscope."): value(a) for a in span.attributes}


@pytest.fixture
def collector():
    collector = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    otlp_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield collector
    server.stop(None)


@pytest.fixture
def ring(tmp_path):
    ring = ring_at(tmp_path, a_boot())
    yield ring
    ring.close()


def sent(collector, ring, share=1.0, pull_bytes=1_000):
    """Everything on the ring as spans, in several batches."""
    spans = Spans.to(f"http://127.0.0.1:{collector.port}", share)
    rings = Rings(ring.path.parent)
    rings.refresh()
    (open_ring,) = rings.open
    made = cut(open_ring, Cursor(), pull_bytes=pull_bytes)
    while made.records:
        spans.add(open_ring.origin, made.records, made.tables)
        made = cut(open_ring, made.cursor, pull_bytes=pull_bytes)
    spans.close()
    assert spans.made == len(collector.spans)
    return collector.spans


def test_a_request_is_one_span_with_a_child_for_each_of_its_rounds(collector, ring):
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(1))
    for _ in range(40):
        traffic.round(3)

    spans = sent(collector, ring)

    parents = {span.span_id: span for span in spans if span.name == "request"}
    rounds = [span for span in spans if span.name == "round"]
    assert len(parents) == len(traffic.outputs)
    assert len(rounds) == 40 * 3
    assert len({span.span_id for span in spans}) == len(spans)
    emitted = dict.fromkeys(parents, 0)
    for span in rounds:
        if parent := parents.get(span.parent_span_id):
            assert span.trace_id == parent.trace_id
            emitted[span.parent_span_id] += attributes(span)["emitted"]
    assert emitted == {id: attributes(s)["output_tokens"] for id, s in parents.items()}


def test_a_round_says_where_its_time_went_and_how_fast_it_moved_bytes(collector, ring):
    Recorder(ring, salt=b"s").round(
        started_at=1_790_000_000_000_000_000,
        wall_us=5_000.0,
        draft_us=1_000.0,
        verify_us=3_000.0,
        idle_us=500.0,
        requests=[7],
        contexts=[100],
        classes=[255],
        k=[4],
        accepted=[2],
        emitted=[3],
        ends=[0],
    )

    (span,) = sent(collector, ring)

    told = attributes(span)
    assert (told["draft_us"], told["verify_us"], told["idle_us"]) == (1000.0, 3000.0, 500.0)
    assert (told["k"], told["accepted"], told["emitted"], told["context"]) == (4, 2, 3, 100)
    assert "sample_us" not in told
    moved = 2_000_000 + (100 + 5) * 100
    assert told["bandwidth_bytes_s"] == pytest.approx(moved / 0.004)
    assert span.end_time_unix_nano - span.start_time_unix_nano == 5_000_000
    assert collector.resources[0]["service.name"] == "r0"


def test_a_share_of_requests_is_sampled_and_each_of_them_whole(collector, ring):
    traffic = Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(2))
    for _ in range(300):
        traffic.round(4)

    spans = sent(collector, ring, share=0.3, pull_bytes=20_000)

    requests = [span for span in spans if span.name == "request"]
    share = len(requests) / len(traffic.outputs)
    assert 0.15 < share < 0.45
    told = {span.span_id: attributes(span)["output_tokens"] for span in requests}
    emitted = dict.fromkeys(told, 0)
    for span in spans:
        if span.parent_span_id in emitted:
            emitted[span.parent_span_id] += attributes(span)["emitted"]
    assert emitted == told


def test_without_a_share_there_are_no_spans(collector, ring):
    Traffic(Recorder(ring, salt=b"s"), np.random.default_rng(3)).round(4)

    assert sent(collector, ring, share=0.0) == []
