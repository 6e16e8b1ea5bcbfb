"""vLLM's OpenAI server: the class and the end of each request, whatever route it came by."""

import json
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from urllib.parse import urlsplit

import pytest
from vllm_checks import NGRAM
from vllm_rings import read_ring
from vllm_server import server

from specscope_hook.columns import End

PROMPT = "SELECT a, b FROM t WHERE c = 1;\nSELECT a, b FROM t"
COMMON = ["a", "e", "t", " "]
"""Stop strings of which one appears within a few tokens."""


def post(address, route, name, **body):
    """Send a request under an id of ours; the answer."""
    data = json.dumps({"model": "tiny", "max_tokens": 40, "ignore_eos": True, **body}).encode()
    headers = {"Content-Type": "application/json", "X-Request-Id": name}
    request = urllib.request.Request(f"{address}/v1/{route}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from None


def hang_up(address, name):
    """Ask for a long streamed text, read its beginning, and go away.

    Sampled, so that hardly a draft is kept: it takes seconds, and the engine is still at it.
    """
    body = json.dumps(
        {"model": "tiny", "prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True}
        | {"temperature": 2.0, "seed": 3}
    )
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=120) as connection:
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {place.netloc}\r\nX-Request-Id: {name}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall((head + body).encode())
        assert b"200 OK" in connection.recv(4096)
    time.sleep(2)


@pytest.fixture(scope="module")
def recorded(vllm_python, models, tmp_path_factory):
    """The ring of a server after one request of each kind, and its answers by name."""
    directory = tmp_path_factory.mktemp("requests")
    rings, rules, template = directory / "rings", directory / "rules.json", directory / "chat"
    rings.mkdir()
    rules.write_text(json.dumps({"rules": [{"class": "sql", "request_id": "^sql-"}]}))
    template.write_text("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    arguments = ("--shutdown-timeout", "60", "--chat-template", str(template))
    settings = {"SPECSCOPE_CLASSES": str(rules)}
    log = directory / "log"
    chat = {"messages": [{"role": "user", "content": PROMPT}]}
    with server(
        vllm_python, models / "target", NGRAM, rings, log, settings=settings, arguments=arguments
    ) as address:
        answers = {
            "samples": post(
                address, "completions", "sql-1", prompt=PROMPT, n=3, temperature=1.0, seed=1
            ),
            "chat": post(address, "chat/completions", "sql-2", **chat),
            "named": post(
                address, "completions", "x-3", prompt=PROMPT,
                vllm_xargs={"specscope_class": "report"},
            ),
            "ruled": post(
                address, "completions", "sql-4", prompt=PROMPT,
                vllm_xargs={"specscope_class": "report"},
            ),
            "plain": post(address, "completions", "x-5", prompt=PROMPT),
            "stopped": post(address, "completions", "stop-6", prompt=PROMPT, stop=COMMON),
        }  # fmt: skip
        hang_up(address, "gone-7")
    return read_ring(rings), answers


def test_rules_reach_samples_chat_and_clients_own_labels(recorded):
    run, _ = recorded

    classes = Counter(run.classes[request.class_] for request in run.ends)

    # 3 samples, chat and one that a rule outranks; x-5, stop-6 and gone-7 match nothing
    assert classes == {"sql": 5, "report": 1, "unlabelled": 3}


def test_a_stop_string_is_not_called_an_abort(recorded):
    run, answers = recorded

    reasons = Counter(End(request.reason) for request in run.ends)

    assert answers["stopped"]["choices"][0]["finish_reason"] == "stop"
    assert reasons == {End.LENGTH: 7, End.STOP_OR_ABORT: 1, End.ABORT: 1}


def test_the_boot_carries_memory_and_configuration_of_the_engine(recorded):
    run, _ = recorded

    configuration = json.loads(run.boot["configuration"])
    assert run.boot["largest_batch"] == 8
    assert run.boot["cache_blocks"] > 0
    assert run.boot["block_size"] > 0
    assert run.boot["bytes_per_weight"] == 2.0  # bfloat16, as it is served
    assert configuration["speculative"]["method"] == "ngram"
    assert configuration["speculative"]["num_speculative_tokens"] == 4
    assert len(run.boot["configuration_digest"]) == 12
