"""vLLM's OpenAI server under concurrent load: our rounds against its /metrics page."""

import json
import re
import socket
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from conftest import environment, read_ring

from specscope_hook.columns import End


@contextmanager
def server(python, model, spec, rings, log):
    """A server that is ready, on its own port; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--port", str(port), "--host", "127.0.0.1", "--max-model-len", "512"]
    command += ["--enforce-eager", "--max-num-seqs", "8", "--served-model-name", "tiny"]
    command += ["--speculative-config", json.dumps(spec)]
    extra = {"SPECSCOPE_RINGS": str(rings), "SPECSCOPE_REPLICA": "r0"}
    with log.open("w") as out:
        process = subprocess.Popen(command, env=environment(extra), stdout=out, stderr=out)
    try:
        address = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 400
        while not answers(address):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(1)
        yield address
    finally:
        process.terminate()
        process.wait(120)


def answers(address):
    try:
        urllib.request.urlopen(f"{address}/health", timeout=5).close()
    except OSError:
        return False
    return True


def complete(address, number):
    body = {
        "model": "tiny",
        "prompt": [5 + number, 6, 7, 8, 5 + number, 6, 7, 8],
        "max_tokens": 8 + number % 5 * 6,
        "temperature": 0.0 if number % 2 else 0.8,
        "seed": number,
    }
    data = json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "X-Request-Id": f"sql-{number}"}
    request = urllib.request.Request(f"{address}/v1/completions", data, headers)
    with urllib.request.urlopen(request, timeout=200) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def counters(address):
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = {}
    for name, labels, value in re.findall(r"^(vllm:\w+){(.*)} (\S+)$", text, re.MULTILINE):
        position = re.search(r'position="(\d+)"', labels)
        found[name, position[1] if position else ""] = float(value)
    return found


def test_under_concurrent_load_our_rounds_equal_the_metrics_page(vllm_python, models, tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    spec = {"method": "draft_model", "model": str(models / "target"), "num_speculative_tokens": 3}

    with (
        server(vllm_python, models / "target", spec, rings, tmp_path / "log") as address,
        ThreadPoolExecutor(12) as clients,
    ):
        usage = list(clients.map(lambda number: complete(address, number), range(40)))
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
