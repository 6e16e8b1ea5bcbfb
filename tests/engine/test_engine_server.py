"""The server in a process of its own, spoken to over HTTP."""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from waiting import PATIENCE_S, until

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
    process, url = start(
        "--slots", "4", "--capacity", "300", "--cache-tokens", "500", "--prefill-tokens", "32"
    )
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
        ({"prompt": "a", "temperature": 10**400}, "beyond all numbers"),
        ({"prompt": "a", "temperature": 1e300}, "temperature must be 0 or in"),
        ({"prompt": "a", "temperature": 1e-300}, "temperature must be 0 or in"),
        ({"prompt": "a", "top_p": 0}, "top_p must be in"),
        ({"prompt": "a", "top_k": -2}, "top_k must be in 0"),
        ({"prompt": "a", "top_k": 1 << 70}, "top_k must be in 0"),
        ({"prompt": "a", "seed": 1 << 70}, "seed must fit 64 bits"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens must be in"),
        ({"prompt": "a", "max_tokens": 1 << 40}, "max_tokens must be in"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens has the wrong type"),
        ({"prompt": "a", "n": 2}, "n other than 1"),
        ({"prompt": "a", "n": True}, "n other than 1"),
        ({"prompt": "a", "frequency_penalty": 0.5}, "frequency_penalty other than 0"),
        ({"prompt": "a", "stream": "yes"}, "stream has the wrong type"),
        ({"prompt": "a", "stream_options": 5}, "stream_options has the wrong type"),
        ({"prompt": "a", "mode": "beam"}, "mode must be one of"),
        ({"prompt": [2048]}, "outside 0..2047"),
        ({"prompt": [1, True]}, "prompt must be"),
        ({"prompt": ["a", 5]}, "prompt must be"),
        ({"prompt": "a", "stop": [""]}, "a stop string is empty"),
        ({"prompt": "a", "stop": ["x"] * 9}, "at most 8 stop strings"),
        ({"prompt": "a", "logprobs": 3}, "logprobs other than false"),
        ({"prompt": "a", "logprobs": 0}, "logprobs other than false"),
        ({"prompt": "a", "frobnicate": 1}, "'frobnicate' is not a field"),
        ({"prompt": "a", "messages": []}, "'messages' is not a field"),
        ({"prompt": "a", "echo": 0}, "echo other than false"),
        ({"prompt": "a", "model": "gpt-5"}, "no model 'gpt-5'"),
        ({"prompt": "a", "stop": [1]}, "stop"),
        ([], "JSON object"),
    ],
)
def test_a_body_that_cannot_be_served_is_answered_with_its_reason(server, body, reason):
    answer = server.post("/v1/completions", json=body)

    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        (b'{"prompt": "\\ud800"}', "surrogate"),
        (b'{"prompt": "a", "stop": ["\\udfff"]}', "surrogate"),
        (b'{"prompt": "a", "user": "\\ud800"}', "surrogate"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"prompt": "a", "temperature": NaN}', "temperature"),
        (b'"' + b"a" * (16 << 20), "more than"),
    ],
)
def test_bytes_that_are_no_request_are_answered_with_their_reason(server, body, reason):
    answer = server.post("/v1/completions", content=body)

    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "x",
        [5],
        [{}],
        [{"role": "user"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": []}],
        [{"role": 5, "content": "a"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}],
    ],
)
def test_a_chat_without_texts_is_answered_so(server, messages):
    answer = server.post("/v1/chat/completions", json={"messages": messages})

    assert answer.status_code == 400
    assert "message" in answer.json()["error"]["message"]


def test_a_path_or_method_that_is_not_there_is_answered_as_errors_are(server):
    for method, path, status in (("GET", "/v1/completions", 405), ("POST", "/v1/images", 404)):
        answer = server.request(method, path)

        assert answer.status_code == status
        assert answer.json()["error"]["message"]


def test_the_server_is_well_after_all_that(server):
    assert server.get("/health").text == "ok"
    assert complete(server, top_k=-1).status_code == 200


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


def counted(client, name):
    lines = client.get("/metrics").text.splitlines()
    values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(name)]
    return float(values[0]) if values else 0.0


def test_a_client_that_goes_away_while_it_waits_is_never_run(server):
    ended = 'specscope_engine_requests_total{reason="abort"}'
    emitted = "specscope_engine_emitted_tokens_total"
    long = {"prompt": PROMPT, "max_tokens": 250, "ignore_eos": True}
    impatient = httpx.Timeout(PATIENCE_S, read=0.05)

    def goes_away():
        """Whether nothing of it came out; on a busy machine a row may be free before it leaves."""
        before, tokens = counted(server, ended), counted(server, emitted)
        with ThreadPoolExecutor(4) as pool:
            answers = [
                pool.submit(server.post, "/v1/completions", json=long | {"seed": i})
                for i in range(4)
            ]
            until(lambda: counted(server, emitted) > tokens)
            with pytest.raises(httpx.ReadTimeout):
                server.post("/v1/completions", json=long, timeout=impatient)
            usages = [answer.result().json()["usage"] for answer in answers]
        until(lambda: counted(server, ended) > before)
        assert {usage["completion_tokens"] for usage in usages} == {250}
        return counted(server, emitted) == tokens + 4 * 250

    until(goes_away)


def test_a_full_cache_puts_requests_back_and_all_are_answered_with_their_own_text(server):
    generation = [
        {"prompt": PROMPT, "max_tokens": 150, "ignore_eos": True, "seed": seed} for seed in range(4)
    ]
    alone = [text_of(server, body) for body in generation]
    before = counted(server, "specscope_engine_preemptions_total")

    def preempt():
        """Whether one had to go: not where a busy machine sends one after the other."""
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda body: text_of(server, body), generation)) == alone
        return counted(server, "specscope_engine_preemptions_total") > before

    until(preempt)
    assert counted(server, "specscope_engine_prefill_tokens_total") > 0


def text_of(client, body):
    return client.post("/v1/completions", json=body).json()["choices"][0]["text"]


def test_a_cache_too_small_for_one_sequence_is_one_line_and_exit_code_1():
    command = [sys.executable, "-c", RUN, "engine", "serve", "--port", "0", "--cache-tokens", "100"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 1
    assert "cache_tokens 100 cannot hold one sequence" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_is_told_to_stop_finishes_its_answers():
    process, url = start("--slots", "2")
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        body = {"prompt": PROMPT, "max_tokens": 400, "stream": True, "ignore_eos": True}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            until(lambda: client.get("/health").text == "draining")
            assert client.get("/health").status_code == 503
            assert complete(client).status_code == 503
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
