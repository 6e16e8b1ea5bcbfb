"""SGLang's own publisher of forward passes, followed by the sidecar's source."""

import importlib.util
import sys
import time

import pytest

from specscope_agent.sources.forward_passes import ForwardPasses
from specscope_hook.ring import Cursor

pytestmark = pytest.mark.sglang


@pytest.fixture
def published(sglang_source, monkeypatch):
    """SGLang's module, alone: it needs nothing else of SGLang."""
    path = sglang_source / "sglang" / "srt" / "observability" / "forward_pass_metrics.py"
    spec = importlib.util.spec_from_file_location("sglang_forward_pass_metrics", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # msgspec looks types up there
    spec.loader.exec_module(module)
    return module


def test_what_sglangs_publisher_sends_is_added_up(published, tmp_path):
    where = f"ipc://{tmp_path / 'fpm'}.0"
    publisher = published._FpmPublisherThread(where, worker_id="w", dp_rank=0)
    source = ForwardPasses(where, "r0")
    source.poll(lambda _: Cursor())
    deadline = time.monotonic() + 30
    passes = 0
    while source.missing and time.monotonic() < deadline:  # what comes before is not for us
        publisher.publish(published.ForwardPassMetrics())
        time.sleep(0.05)
        source.poll(lambda _: Cursor())
    for number in range(200):
        publisher.publish(
            published.ForwardPassMetrics(
                wall_time=0.01,
                scheduled_requests=published.ScheduledRequestMetrics(
                    num_prefill_requests=1,
                    sum_prefill_tokens=7,
                    num_decode_requests=3,
                    sum_decode_kv_tokens=100 + number,
                ),
                queued_requests=published.QueuedRequestMetrics(
                    num_prefill_requests=2, num_decode_requests=1
                ),
            )
        )
    while passes < 200 and time.monotonic() < deadline:
        source.poll(lambda _: Cursor())
        passes = source._sums.passes
    publisher.shutdown()
    sums = {one.field: one.value for one in source._sums.values()}
    source.close()

    assert sums["engine_passes"] == 200
    assert sums["engine_passes_missed"] == 0
    assert sums["engine_pass_ms"] == pytest.approx(2000)
    assert sums["engine_request_rounds"] == 600
    assert sums["engine_context_tokens"] == sum(100 + number for number in range(200))
    assert sums["engine_prefill_tokens"] == 1400
    assert source._read(published.encode(published.ForwardPassMetrics(version=2))) is None
