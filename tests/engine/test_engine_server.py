"""The server in a process of its own, spoken to over HTTP."""

import json
import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from waiting import PATIENCE_S, until

from specscope.engine.text_stream import TextStream

RUN = "import sys; from specscope.cli import main; sys.exit(main(sys.argv[1:]))"
PROMPT = '{"time": "2026-03-14T23:16:45Z", "level": "info", "service": "catalog"'


def start(*arguments):
    command = [sys.executable, "-c", RUN, "engine", "serve", "--port", "0", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    line = process.stderr.readline()
    assert "serving" in line, line + process.stderr.read()
    return process, line.split()[-1].removesuffix("/v1")


@pytest.fixture(scope="module")
def server():
    process, url = start("--slots", "4", "--capacity", "300")
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        until(lambda: answers(client))
        yield client
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


def answers(client):
    try:
        return client.get("/health")
    except httpx.TransportError:
        return None


def complete(client, **body):
    return client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 24, **body})


def events(client, path, body):
    with client.stream("POST", path, json=body | {"stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_completion_has_the_openai_shape(server):
    body = complete(server, seed=1).json()

    assert body["object"] == "text_completion"
    choice = body["choices"][0]
    assert choice["finish_reason"] in ("length", "stop")
    assert choice["text"]
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] <= 24


def test_one_seed_gives_one_text_streamed_or_not(server):
    whole = complete(server, seed=7).json()["choices"][0]["text"]
    again = complete(server, seed=7).json()["choices"][0]["text"]

    body = {"prompt": PROMPT, "max_tokens": 24, "seed": 7}
    pieces = events(server, "/v1/completions", body)

    streamed = "".join(piece["choices"][0]["text"] for piece in pieces)
    assert whole == again == streamed
    assert [p["choices"][0]["finish_reason"] for p in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1]["choices"][0]["finish_reason"]


def test_a_stop_string_is_not_in_the_text(server):
    plain = complete(server, seed=3).json()["choices"][0]["text"]
    stop = plain[len(plain) // 2 :][:3]

    body = complete(server, seed=3, stop=[stop]).json()
    pieces = events(
        server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 24, "seed": 3, "stop": stop}
    )

    cut = plain[: plain.index(stop)]
    assert body["choices"][0]["text"] == cut
    assert body["choices"][0]["finish_reason"] == "stop"
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == cut


def test_a_chat_streams_a_role_once_and_its_usage_when_asked(server):
    body = {
        "messages": [{"role": "user", "content": "select"}],
        "max_tokens": 8,
        "stream_options": {"include_usage": True},
    }

    *pieces, last = events(server, "/v1/chat/completions", body)

    assert pieces[0]["object"] == "chat.completion.chunk"
    assert [("role" in piece["choices"][0]["delta"]) for piece in pieces].count(True) == 1
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] <= 8
    answer = server.post("/v1/chat/completions", json=body | {"stream": False}).json()
    assert answer["choices"][0]["message"]["role"] == "assistant"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"prompt": "a " * 2000}, "at most 299 fit"),
        ({"prompt": ""}, "empty"),
        ({"prompt": 5}, "prompt must be"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "temperature": "hot"}, "temperature has the wrong type"),
        ({"prompt": "a", "max_tokens": 0}, "max_new_tokens"),
        ({"prompt": "a", "n": 2}, "n other than 1"),
        ({"prompt": "a", "logprobs": 3}, "logprobs"),
        ({"prompt": "a", "model": "gpt-5"}, "no model 'gpt-5'"),
        ({"prompt": "a", "stop": [1]}, "stop"),
        ([], "JSON object"),
    ],
)
def test_a_body_that_cannot_be_served_is_answered_with_its_reason(server, body, reason):
    answer = server.post("/v1/completions", json=body)

    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]


def test_a_body_that_is_not_json_is_answered_so(server):
    answer = server.post("/v1/completions", content=b"{")

    assert answer.status_code == 400
    assert "not JSON" in answer.json()["error"]["message"]


def test_models_and_metrics_tell_what_runs(server):
    complete(server)

    names = [model["id"] for model in server.get("/v1/models").json()["data"]]
    text = server.get("/metrics").text

    assert names == ["specscope-bundled"]
    counters = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(counters["specscope_engine_emitted_tokens_total"]) > 0
    assert any(name.startswith("specscope_engine_requests_total{") for name in counters)


def test_a_client_that_goes_away_frees_its_row(server):
    body = {"prompt": PROMPT, "max_tokens": 220, "stream": True, "ignore_eos": True}

    def metrics():
        return server.get("/metrics").text

    def goes_away():
        """Whether it was gone before the answer was whole, which a busy machine may prevent."""
        with server.stream("POST", "/v1/completions", json=body) as answer:
            next(answer.iter_lines())
        until(lambda: "specscope_engine_running 0" in metrics())
        return 'requests_total{reason="abort"}' in metrics()

    until(goes_away)


def test_a_server_that_is_told_to_stop_finishes_its_answers():
    process, url = start("--slots", "2")
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        body = {"prompt": PROMPT, "max_tokens": 200, "stream": True, "ignore_eos": True}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]

    assert rest[-1] == "data: [DONE]"
    assert process.wait(PATIENCE_S) == 0


def test_a_taken_port_is_one_line_and_exit_code_1():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-c", RUN, "engine", "serve", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_character_of_several_tokens_is_given_out_whole():
    stream = TextStream(lambda ids: bytes(ids).decode(errors="replace"), ())

    pieces = [stream.feed([byte]) for byte in "aé→b".encode()]

    assert pieces == ["a", "", "é", "", "", "→", "b"]


def test_what_may_become_a_stop_string_is_kept_back():
    stream = TextStream(lambda ids: bytes(ids).decode(), ("END",))

    pieces = [stream.feed(part.encode()) for part in ("aE", "N", "x", "yEN", "Dz")]

    assert pieces == ["a", "", "ENx", "y", ""]
    assert stream.finish() == ""
