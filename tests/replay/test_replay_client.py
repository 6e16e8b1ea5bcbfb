"""One request to an endpoint, and the whole of a schedule, against scripted answers."""

import asyncio
import contextlib
import json
import math
import socket
import threading
import time

import httpx
import pytest
from httpcore._backends.anyio import AnyIOBackend
from replay.answers import trace

from specscope.errors import InputError
from specscope.replay import play as playing
from specscope.replay.client import Endpoint
from specscope.replay.counters import Counted, between, total
from specscope.replay.play import ReplayPace
from specscope.replay.schedule import cut
from specscope.served import asking


def event(body):
    return f"data: {json.dumps(body)}\n\n"


def pieces(*texts, tokens=5):
    said = [event({"choices": [{"text": text}]}) for text in texts]
    usage = {"completion_tokens": tokens, "prompt_tokens": 3}
    return "".join([*said, event({"choices": [], "usage": usage}), "data: [DONE]\n\n"])


def ask(content, status=200, chat=False):
    """What a client sees of one answer, and what it sent."""
    sent = []

    def answer(request):
        sent.append(request)
        return httpx.Response(status, text=content)

    async def once():
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            one = trace(1, messages=[{"role": "user"}]) if chat else trace(1)
            return await Endpoint("a", "http://e/v1/", client, "m").ask(one.requests[0], 0, 0.0)

    return asyncio.run(once()), sent[0]


def test_an_answer_is_timed_by_its_pieces_and_counted_by_its_usage():
    found, sent = ask(pieces("", "SELECT", " ", "1"))

    assert (found.error, found.output_tokens, found.prompt_tokens) == ("", 5, 3)
    assert found.ttft_ms > 0
    assert found.decode_ms >= 0
    assert sum(found.gaps.values()) == 2  # an empty piece is none
    assert sent.url == "http://e/v1/completions"
    assert sent.headers["x-specscope-class"] == "sql"
    assert json.loads(sent.content)["stream_options"] == {"include_usage": True}


def test_a_chat_goes_where_chats_go_and_its_thoughts_count():
    said = [{"delta": {"role": "assistant", "content": ""}}, {"delta": {"reasoning_content": "hm"}}]
    said.append({"delta": {"content": "yes"}})
    stream = "".join(event({"choices": [choice]}) for choice in said) + "data: [DONE]\n\n"

    found, sent = ask(stream, chat=True)

    assert sent.url == "http://e/v1/chat/completions"
    assert sum(found.gaps.values()) == 1
    assert found.output_tokens is None


def test_the_same_text_in_other_pieces_has_the_same_digest():
    assert ask(pieces("ab", "c"))[0].digest == ask(pieces("a", "bc"))[0].digest
    assert ask(pieces("ab"))[0].digest != ask(pieces("abc"))[0].digest


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        ("no room", 503, "HTTP 503: no room"),
        (pieces("a").replace("data: [DONE]", ""), 200, "ended before it was done"),
        (event({"error": {"message": "broken"}}), 200, "broken"),
        ("data: {\n\n", 200, "Expecting"),
        ("data: [1]\n\n", 200, "the stream says"),
        (event({"choices": ["a"]}), 200, "a choice says a"),
        (event({"choices": [{"delta": [1]}]}), 200, "a choice says"),
        (event({"choices": 5}), 200, "not iterable"),
        (event({"usage": 5}), 200, "usage says 5"),
        (pieces("a", tokens="5"), 200, "usage says '5' completion_tokens"),
    ],
)
def test_an_answer_that_is_not_whole_carries_its_error(content, status, said):
    found, _ = ask(content, status)

    assert said in found.error
    assert found.digest == ""


def test_an_answer_without_text_is_whole_and_has_no_times():
    found, _ = ask(pieces("", tokens=1))

    assert found.error == ""
    assert math.isnan(found.ttft_ms)


def played(monkeypatch, handle, urls=("http://a", "http://b"), pace=None, parts=4):
    monkeypatch.setattr(
        playing, "asking", lambda _: httpx.AsyncClient(transport=httpx.MockTransport(handle))
    )
    made = cut(trace(12, span_s=0.2), parts, 1, 0)
    parts = playing.play(urls, made, pace or ReplayPace(warm_up=1))
    return [outcome for part in parts for outcome in part.outcomes], made


@pytest.mark.parametrize(
    "pace",
    [
        ReplayPace(warm_up=2),
        ReplayPace(concurrency=3, warm_up=0),
        ReplayPace(together=True),
        ReplayPace(speed=10.0),
    ],
    ids=["arrivals", "depth", "together", "faster"],
)
def test_each_side_gets_every_request_once_in_the_order_of_the_schedule(monkeypatch, pace):
    heard = []

    def handle(request):
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m"}]})
        if request.url.path == "/metrics":
            return httpx.Response(404)
        heard.append((request.url.host, json.loads(request.content)["model"]))
        return httpx.Response(200, text=pieces("x", "y"))

    outcomes, made = played(monkeypatch, handle, pace=pace)

    for side in "ab":
        mine = [o for o in outcomes if o.side == side]
        assert sorted(o.number for o in mine) == list(range(12))
        assert not any(o.error for o in mine)
    assert len(heard) == 24 + 2 * pace.warm_up
    assert {model for _, model in heard} == {"m"}
    if not pace.together:
        hosts = [host for host, _ in heard[2 * pace.warm_up :]]
        wanted = [side for part in made for side in part.order for _ in part.requests]
        assert hosts == wanted


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(404), httpx.Response(200, text="hello"), httpx.ConnectError("refused")],
)
def test_what_is_no_endpoint_is_said_before_anything_is_sent(monkeypatch, answer):
    def handle(request):
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(InputError, match="http://a does not answer as OpenAI's API"):
        played(monkeypatch, handle)


def test_an_address_that_is_none_is_said_in_one_line(monkeypatch):
    with pytest.raises(InputError, match="does not answer"):
        played(monkeypatch, lambda _: httpx.Response(404), urls=("http://[::1", "http://b"))


def test_an_endpoint_that_dies_meanwhile_is_failures_not_an_end(monkeypatch):
    def handle(request):
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m"}]})
        if request.url.host == "b":
            raise httpx.ReadError("gone")
        return httpx.Response(200, text=pieces("x", "y"))

    outcomes, _ = played(monkeypatch, handle)

    assert {o.error for o in outcomes if o.side == "b"} == {"gone"}
    assert {o.error for o in outcomes if o.side == "a"} == {""}


def test_each_side_is_counted_around_its_own_stretches(monkeypatch):
    drafts = {"a": 0, "b": 0}

    def handle(request):
        host = request.url.host
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m"}]})
        if request.url.path == "/metrics":
            return httpx.Response(200, text=exposition(drafts[host]))
        drafts[host] += 10 if host == "b" else 0
        return httpx.Response(200, text=pieces("x", "y"))

    monkeypatch.setattr(
        playing, "asking", lambda _: httpx.AsyncClient(transport=httpx.MockTransport(handle))
    )
    made = cut(trace(12, span_s=0.2), 4, 1, 0)

    parts = playing.play(("http://a", "http://b"), made, ReplayPace(warm_up=1))

    assert total(part.counted["a"] for part in parts) == Counted(0, 0, 0)
    assert total(part.counted["b"] for part in parts) == Counted(120, 480, 240)


def exposition(drafts, started=5):
    labels = '{engine="0",model_name="m"}'
    return f"""vllm:spec_decode_num_drafts_total{labels} {drafts}
vllm:spec_decode_num_draft_tokens_total{labels} {4 * drafts}
vllm:spec_decode_num_accepted_tokens_total{labels} {2 * drafts}
process_start_time_seconds {started}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, exposition(5)),
        (exposition(5), None),
        (exposition(5), "nothing that counts"),
        (exposition(5), exposition(9, started=6)),
        (exposition(9), exposition(5)),
    ],
)
def test_counts_that_are_not_known_are_none(before, after):
    assert between(before, after) is None


def test_a_stretch_that_is_not_counted_leaves_the_whole_unknown():
    assert total([Counted(1, 4, 2), None]) is None


def test_a_server_that_drops_connections_without_a_word_loses_no_request():
    with Impatient() as server:

        async def often():
            async with asking(10.0) as client:
                for _ in range(20):
                    await client.get(server.url)

        asyncio.run(often())

    assert server.answered == 20


def test_the_time_that_a_connection_takes_is_no_time_to_first_text(monkeypatch):
    connect = AnyIOBackend.connect_tcp

    async def slowly(*args, **kwargs):
        await asyncio.sleep(0.5)
        return await connect(*args, **kwargs)

    monkeypatch.setattr(AnyIOBackend, "connect_tcp", slowly)
    with Impatient(pieces("a")) as server:

        async def once():
            began = time.perf_counter()
            async with asking(10.0) as client:
                return await Endpoint("a", server.url, client, "m").ask(
                    trace(1).requests[0], 0, began
                )

        found = asyncio.run(once())

    assert found.error == ""
    assert found.began_s >= 0.5
    assert found.ttft_ms < 1e3 * (found.ended_s - 0.5) + 1.0


class Impatient:
    """A server that drops every connection after its answer, and does not say that it will."""

    def __init__(self, text=""):
        self.text, self.answered = text, 0

    def __enter__(self):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listening.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection):
        with connection:
            if connection.recv(1 << 16):
                self.answered += 1
                head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(self.text)}\r\n\r\n"
                connection.sendall((head + self.text).encode())
