"""vLLM's OpenAI server as a process, and what its /metrics page says."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_rings import environment, kill_all_of

from specscope.demo.processes import free_port


@contextmanager
def server(
    python: str,
    model: Path,
    spec: dict,
    rings: Path,
    log: Path,
    *,
    settings: dict[str, str] | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[str]:
    """A server that is ready, on its own port; its address. It is called `tiny`."""
    port = free_port()
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--port", str(port), "--host", "127.0.0.1", "--max-model-len", "512"]
    command += ["--enforce-eager", "--max-num-seqs", "8", "--served-model-name", "tiny"]
    command += ["--speculative-config", json.dumps(spec), *arguments]
    extra = {"SPECSCOPE_RINGS": str(rings), "SPECSCOPE_REPLICA": "r0"} | (settings or {})
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            env=environment(extra),
            stdout=out,
            stderr=out,
            text=True,
            start_new_session=True,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 800
        while not answers(address):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(1)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(300)
        finally:
            kill_all_of(process)


def answers(address: str) -> bool:
    """Whether it says that it is healthy."""
    try:
        urllib.request.urlopen(f"{address}/health", timeout=5).close()
    except OSError:
        return False
    return True


def complete(address: str, name: str, **body) -> int:
    """Send a request under an id of ours; how many tokens came back."""
    data = json.dumps({"model": "tiny", **body}).encode()
    headers = {"Content-Type": "application/json", "X-Request-Id": name}
    request = urllib.request.Request(f"{address}/v1/completions", data, headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def counters(address: str) -> dict[tuple[str, str], float]:
    """Values of the /metrics page by name and, where it has one, position."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found: dict[tuple[str, str], float] = {}
    for name, labels, value in re.findall(r"^(vllm:\w+){(.*)} (\S+)$", text, re.MULTILINE):
        position = re.search(r'position="(\d+)"', labels)
        key = name, position[1] if position else ""
        found[key] = found.get(key, 0.0) + float(value)
    return found
