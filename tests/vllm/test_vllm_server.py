"""vLLM's OpenAI server under concurrent load: our rounds against its /metrics page."""

import time
from concurrent.futures import ThreadPoolExecutor

from vllm_rings import read_ring
from vllm_server import complete, counters, server

from specscope_hook.columns import End


def send(address, number):
    return complete(
        address,
        f"sql-{number}",
        prompt=[5 + number, 6, 7, 8, 5 + number, 6, 7, 8],
        max_tokens=8 + number % 5 * 6,
        temperature=0.0 if number % 2 else 0.8,
        seed=number,
    )


def test_under_concurrent_load_our_rounds_equal_the_metrics_page(vllm_python, models, tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    spec = {"method": "draft_model", "model": str(models / "target"), "num_speculative_tokens": 3}

    with (
        server(vllm_python, models / "target", spec, rings, tmp_path / "log") as address,
        ThreadPoolExecutor(12) as clients,
    ):
        usage = list(clients.map(lambda number: send(address, number), range(40)))
        time.sleep(2)
        page = counters(address)
    run = read_ring(rings)

    pairs = [(k, a) for r in run.rounds for k, a in zip(r.k, r.accepted, strict=True)]
    by_position = [sum(a > j for _, a in pairs) for j in range(3)]
    assert run.fault == ""
    assert run.ended
    assert len(run.ends) == 40
    assert sorted(request.output_tokens for request in run.ends) == sorted(usage)
    assert run.total("k") == page["vllm:spec_decode_num_draft_tokens_total", ""]
    assert run.total("accepted") == page["vllm:spec_decode_num_accepted_tokens_total", ""]
    for position, count in enumerate(by_position):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        assert count == page[name, str(position)]
    assert len(pairs) == page["vllm:inter_token_latency_seconds_count", ""]
    assert sum(usage) == run.total("emitted") + 40 == page["vllm:generation_tokens_total", ""]
    assert max(len(round_.k) for round_ in run.rounds) > 1
    assert {request.reason for request in run.ends} <= {End.LENGTH, End.EOS}
