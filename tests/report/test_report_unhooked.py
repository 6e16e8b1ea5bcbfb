"""Engines that are followed without a hook: their sums stand in a note, and nowhere else."""

import time

import msgspec
import pytest

from specscope.report.collect import collect
from specscope.report.unhooked import sums_in_words
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope_agent.loss import rows_table
from specscope_agent.sources.forward_passes import ForwardPasses
from specscope_agent.sources.sums import INTERVAL_NS
from specscope_agent.sources.vllm_metrics import VllmMetrics
from specscope_hook.ring import Cursor

COUNTERS = ("drafts", "draft_tokens", "accepted_tokens")


def page(drafts, accepted, rounds, tokens):
    values = dict(zip(COUNTERS, (drafts, 4 * drafts, accepted), strict=True))
    lines = []
    for name, value in values.items():
        series = f"vllm:spec_decode_num_{name}"
        lines += [f"# TYPE {series} counter", f'{series}_total{{engine="0"}} {value}.0']
    lines += [
        "# TYPE vllm:generation_tokens counter",
        f'vllm:generation_tokens_total{{engine="0"}} {tokens}.0',
        "# TYPE vllm:inter_token_latency_seconds histogram",
        f'vllm:inter_token_latency_seconds_bucket{{engine="0",le="+Inf"}} {rounds}.0',
        f'vllm:inter_token_latency_seconds_count{{engine="0"}} {rounds}.0',
        'vllm:inter_token_latency_seconds_sum{engine="0"} 1.0',
    ]
    return "\n".join(lines) + "\n"


def passes(*ms):
    scheduled = dict.fromkeys(("num_prefill_requests", "sum_prefill_tokens"), 0)
    scheduled |= {"num_decode_requests": 3, "sum_decode_kv_tokens": 90}
    queued = {"num_prefill_requests": 0, "num_decode_requests": 0}
    return [
        msgspec.msgpack.encode(
            {
                "version": 1,
                "worker_id": "w",
                "counter_id": number,
                "wall_time": each / 1e3,
                "scheduled_requests": scheduled,
                "queued_requests": queued,
            }
        )
        for number, each in enumerate(ms)
    ]


@pytest.fixture
def store(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        migrate(opened)
        yield opened


def kept(store, source):
    """What a source harvests is stored, as by sidecar and service."""
    harvest = source.poll(lambda _: Cursor())
    if harvest is None:
        return
    store.insert("boot", rows_table("boot", [dict(harvest.boot)]))
    if harvest.rows.get("device"):
        store.insert("device", rows_table("device", harvest.rows["device"]))
    source.kept()


def test_sums_of_each_engine_are_a_note_and_no_device_of_the_report(store):
    now = time.time_ns() - 600 * 10**9
    clock = iter(range(now, now + 100 * INTERVAL_NS, INTERVAL_NS))
    pages = iter([page(0, 0, 0, 0), page(50, 100, 200, 400)])
    metrics = VllmMetrics("http://a/metrics", "m0", fetch=lambda _: next(pages), now_ns=lambda: at)
    published = passes(10.0, 14.0)
    publisher = ForwardPasses(
        "tcp://a:1", "f0", receive=lambda: [published.pop(0)] if published else [],
        now_ns=lambda: at,
    )  # fmt: skip
    for at in (next(clock), next(clock), next(clock)):
        kept(store, publisher)
        if at < now + 2 * INTERVAL_NS:
            kept(store, metrics)

    report = collect(store, title="x", since=now - 3600 * 10**9)

    assert {row.replica for row in report.replicas} == {"m0", "f0"}
    assert report.devices == []
    (of_pass,) = (note for note in report.notes if note.startswith("f0"))
    (of_page,) = (note for note in report.notes if note.startswith("m0"))
    for words in ("12.0 ms per pass, 3.0 sequences", "no verdict"):
        assert words in of_pass
    for words in ("3.00 tokens per drafted round", "25%", "40.0 output tokens per second"):
        assert words in of_page


def test_an_engine_that_says_nothing_has_no_note():
    nothing = dict.fromkeys(
        ("drafts", "accepted", "tokens", "request_rounds", "passes", "missed", "pass_ms")
    )
    assert sums_in_words([{"replica": "r0", "seconds": 0.0, **nothing}]) == []
