"""vLLM's OpenAI server under concurrent load: our rounds against its /metrics page."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vllm_checks import NGRAM
from vllm_rings import CORES, read_ring, read_rings
from vllm_server import complete, counters, server

from specscope_agent.sources.vllm_metrics import FIELDS, POSITIONS, VllmMetrics
from specscope_hook.columns import End
from specscope_hook.errors import HookError
from specscope_hook.layout import Cursor
from specscope_hook.reader import RingReader


def send(address, number):
    return complete(
        address,
        f"sql-{number}",
        prompt=[5 + number, 6, 7, 8, 5 + number, 6, 7, 8],
        max_tokens=8 + number % 5 * 6,
        temperature=0.0 if number % 2 else 0.8,
        seed=number,
    )


def serve(python, model, spec, tmp_path, cores="", arguments=()):
    """40 requests, 12 at a time: how many tokens came back, the metrics page, and the rings.

    What the sidecar would store of the page alone must be the page's own counts.
    """
    rings = tmp_path / "rings"
    rings.mkdir()
    settings = {"VLLM_CPU_OMP_THREADS_BIND": cores} if cores else {}
    # With vLLM's default of 0 s its core may be killed before it can end the ring.
    arguments = ("--shutdown-timeout", "60", *arguments)
    log = tmp_path / "log"
    with (
        server(python, model, spec, rings, log, settings=settings, arguments=arguments) as address,
        ThreadPoolExecutor(12) as clients,
    ):
        clock = iter(range(0, 10**13, 10**11))  # each look at it is later than an interval
        source = VllmMetrics(f"{address}/metrics", "r0", now_ns=clock.__next__)
        source.poll(lambda _: Cursor())
        source.kept()
        usage = list(clients.map(lambda number: send(address, number), range(40)))
        page = settled(address, sum(usage))
        harvest = source.poll(lambda _: Cursor())
    values = {row["field"]: row["value"] for row in harvest.rows["device"]}
    assert None not in values.values()
    for field, (series, _, gauge) in FIELDS.items():
        assert gauge or values[field] == page[series, ""]
    assert values["engine_accepted_at_0"] == page[POSITIONS, "0"]
    assert harvest.boot["started_at"] > 0
    return usage, page, rings


def settled(address, tokens):
    """The metrics page, once it has counted what came back."""
    end = time.monotonic() + 120
    while (page := counters(address))["vllm:generation_tokens_total", ""] != tokens:
        assert time.monotonic() < end, page
        time.sleep(0.5)
    return page


def assert_equal_to_the_page(runs, usage, page, k_max):
    """All our rounds against what vLLM counted."""
    pairs = [p for run in runs for r in run.rounds for p in zip(r.k, r.accepted, strict=True)]
    by_position = [sum(a > j for _, a in pairs) for j in range(k_max)]
    ends = [request for run in runs for request in run.ends]
    assert [(run.fault, run.ended) for run in runs] == [("", True)] * len(runs)
    assert sorted(request.output_tokens for request in ends) == sorted(usage)
    assert sum(k for k, _ in pairs) == page["vllm:spec_decode_num_draft_tokens_total", ""]
    assert sum(a for _, a in pairs) == page["vllm:spec_decode_num_accepted_tokens_total", ""]
    for position, count in enumerate(by_position):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        assert count == page[name, str(position)]
    assert len(pairs) == page["vllm:inter_token_latency_seconds_count", ""]
    emitted = sum(run.total("emitted") for run in runs)
    assert sum(usage) == emitted + len(usage) == page["vllm:generation_tokens_total", ""]
    assert {request.reason for request in ends} <= {End.LENGTH, End.EOS}


def test_under_concurrent_load_our_rounds_equal_the_metrics_page(vllm_python, models, tmp_path):
    spec = {"method": "draft_model", "model": str(models / "target"), "num_speculative_tokens": 3}

    usage, page, rings = serve(vllm_python, models / "target", spec, tmp_path)

    run = read_ring(rings)
    assert_equal_to_the_page([run], usage, page, 3)
    assert max(len(round_.k) for round_ in run.rounds) > 1


def test_each_data_parallel_rank_has_a_ring_and_together_they_equal_the_metrics_page(
    vllm_python, models, tmp_path
):
    cores = f"{CORES[0]}|{CORES[-1]}"
    arguments = ("--data-parallel-size", "2")

    usage, page, rings = serve(
        vllm_python, models / "target", NGRAM, tmp_path, cores=cores, arguments=arguments
    )

    runs = read_rings(rings)
    assert [run.boot["rank"] for run in runs] == [0, 1]
    assert len({run.boot["boot"] for run in runs}) == 2
    assert all(run.rounds for run in runs)
    assert_equal_to_the_page(runs, usage, page, 4)


def cut(path):
    os.truncate(path, 0)


def overwritten(path):
    path.write_bytes(os.urandom(1 << 16))


def replaced(path):
    other = path.with_suffix(".other")
    other.write_bytes(b"another file")
    other.rename(path)


def test_a_ring_that_is_damaged_under_load_fails_no_request_and_is_made_anew(
    vllm_python, models, tmp_path
):
    rings, log, over = tmp_path / "rings", tmp_path / "log", threading.Event()
    rings.mkdir()
    settings = {"SPECSCOPE_RING_BYTES": str(1 << 22), "VLLM_CPU_OMP_THREADS_BIND": str(CORES[0])}
    arguments = ("--shutdown-timeout", "60")

    def load(address, client):
        """Requests one after the other: how many tokens came back of each."""
        tokens = []
        while not over.is_set():
            tokens.append(send(address, client))
        return tokens

    def whole(path):
        """Whether it is a ring again, with rounds of ours on it."""
        try:
            reader = RingReader.open(path)
        except (HookError, OSError):
            return False
        try:
            return bool(reader.pull(Cursor(), 1 << 40)[0])
        finally:
            reader.close()

    with (
        server(
            vllm_python,
            models / "target",
            NGRAM,
            rings,
            log,
            settings=settings,
            arguments=arguments,
        ) as address,
        ThreadPoolExecutor(8) as clients,
    ):
        (path,) = rings.glob("*.ring")
        loads = [clients.submit(load, address, client) for client in range(8)]
        for damage in (cut, Path.unlink, overwritten, replaced):
            wait_until(lambda: whole(path), 120)
            damage(path)
            assert not whole(path)
        wait_until(lambda: whole(path), 120)
        over.set()
        usage = [tokens for each in loads for tokens in each.result()]  # a refusal would raise

    assert len(usage) > 8
    assert min(usage) > 0
    assert "made anew" in log.read_text()
    reader = RingReader.open(path)
    assert (reader.fault_text, reader.ended) == ("", True)
    assert reader.pull(Cursor(), 1 << 40)[0]


def wait_until(true, seconds):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)
