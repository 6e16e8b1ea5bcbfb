"""The served engine without a process or a port around it."""

import asyncio
import json
import threading
import time
from argparse import ArgumentParser
from dataclasses import replace

import httpx
import pytest
import torch
from engine.tiny_models import Record

import specscope.engine.server.service as service_module
from specscope.engine.cli import add_parser
from specscope.engine.errors import BadSetting
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder
from specscope.engine.pair import Pair, load_bundled
from specscope.engine.server.openai import Reply, parse_request
from specscope.engine.server.server import serve
from specscope.engine.server.service import Piece, Service, Settings, events
from specscope.engine.server.worker import EngineStopped


@pytest.fixture(scope="module")
def pair():
    return load_bundled()


def test_a_stream_whose_engine_ends_says_so_and_is_not_done(pair):
    generation = parse_request(
        {"prompt": "a", "stream_options": {"include_usage": True}}, pair, False
    )
    reply = Reply("cmpl-1", pair.name, 0, generation)

    async def pieces():
        yield Piece("b", 2, None)
        raise EngineStopped("the engine has ended: out of memory")

    async def told():
        return [one async for one in events(reply, Piece("a", 1, None), pieces())]

    *texts, last = (json.loads(one.removeprefix("data: ")) for one in asyncio.run(told()))

    assert [one["choices"][0]["text"] for one in texts] == ["a", "b"]
    assert last["error"]["type"] == "server_error"
    assert "out of memory" in last["error"]["message"]


@pytest.mark.parametrize(("graphs", "shapes"), [(True, 13), (None, 0), (False, 0)])
def test_what_a_server_warms_up_follows_its_limits(pair, graphs, shapes):
    settings = Settings(k=2, slots=1, capacity=64, graphs=graphs)

    # One row of 64 positions or of all 80, greedy or sampled: two kinds of drafting steps and
    # verification, and noise once.
    assert Service(pair, settings, "cpu").warm_up() == shapes


def test_a_device_that_is_too_small_for_the_server_is_named(pair, monkeypatch):
    def warm_up(service):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    monkeypatch.setattr(Service, "warm_up", warm_up)

    with pytest.raises(BadSetting, match="too little memory for 1 sequences of 64 tokens"):
        serve(pair, Settings(k=2, slots=1, capacity=64), "cpu", print)


@pytest.mark.parametrize(("flags", "graphs"), [([], None), (["--no-graphs"], False)])
@pytest.mark.parametrize("command", ["serve", "bench"])
def test_graphs_can_be_turned_off(command, flags, graphs):
    parser = ArgumentParser()
    add_parser(parser.add_subparsers())

    assert parser.parse_args(["engine", command, *flags]).graphs is graphs


def test_requests_without_a_seed_get_different_seeds(pair):
    seeds = [parse_request({"prompt": "a"}, pair, False).params.seed for _ in range(8)]

    assert len(set(seeds)) == 8
    assert parse_request({"prompt": "a", "seed": 3}, pair, False).params.seed == 3


def ask(pair, settings, bodies, headers=None):
    """Answers and the record of a service that was sent `bodies`, one after the other."""
    service, record = Service(pair, settings, "cpu"), Record()
    service.worker.engine.observers.append(record)

    async def talk():
        transport = httpx.ASGITransport(service.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            return [
                await client.post("/v1/completions", json=body, headers=headers) for body in bodies
            ]

    service.worker.start()
    answers = asyncio.run(talk())
    service.worker.stop()
    return answers, record


@pytest.mark.parametrize("drafter", ["model", "eagle", "ngram", "none"])
def test_any_drafter_serves_the_same_text_and_plug_ins_are_told_which(pair, monkeypatch, drafter):
    told = []
    monkeypatch.setattr(service_module, "attach_plugins", lambda *a: told.append(a) or ([], a[1]))
    settings = Settings(k=2, slots=3, capacity=64, drafter=drafter)

    (answer,), record = ask(pair, settings, [{"prompt": "SELECT a, b", "seed": 4}])
    (plain,), _ = ask(pair, replace(settings, k=0), [{"prompt": "SELECT a, b", "seed": 4}])

    assert answer.json()["choices"] == plain.json()["choices"]
    assert any(sum(report.k) for report in record.rounds) == (drafter != "none")
    info = told[0][0]
    assert (info.method, info.k_max, info.slots, info.cache_tokens) == (drafter, 2, 3, 3 * 67)
    drafting = {"model": 446_848, "eagle": 820_224 + 2048 * 256}.get(drafter)
    assert info.card.get("draft", {}).get("parameters") == drafting
    assert bool(info.draft) == (drafting is not None)


def test_the_header_that_was_set_names_the_class_of_a_request(pair):
    settings = Settings(k=2, slots=1, capacity=64, class_header="x-route")
    body = {"prompt": "a", "max_tokens": 2}

    _, record = ask(pair, settings, [body], {"x-route": "sql", "x-specscope-class": "json"})

    assert [request.label for request in record.admissions] == ["sql"]


def test_two_requests_without_a_seed_differ_and_two_with_one_do_not(pair):
    settings, body = Settings(k=2, slots=1, capacity=64), {"prompt": "The", "max_tokens": 16}

    answers, _ = ask(pair, settings, [body, body, body | {"seed": 1}, body | {"seed": 1}])

    one, other, *same = (answer.json()["choices"][0]["text"] for answer in answers)
    assert one != other
    assert same[0] == same[1]


def test_a_list_of_prompts_is_answered_with_a_choice_each(pair):
    settings = Settings(k=2, slots=2, capacity=64)
    texts = ["SELECT id", "The ", "import os"]
    body = {"max_tokens": 12, "seed": 5}
    alone = [body | {"prompt": text} for text in texts]
    several = [body | {"prompt": texts}, body | {"prompt": [pair.encode(text) for text in texts]}]

    answers, record = ask(pair, settings, [*alone, *several])

    bodies = [answer.json() for answer in answers]
    expected = [one["choices"][0]["text"] for one in bodies[:3]]
    for one in bodies[3:]:
        assert [choice["index"] for choice in one["choices"]] == [0, 1, 2]
        assert [choice["text"] for choice in one["choices"]] == expected
        assert one["usage"] == {
            name: sum(each["usage"][name] for each in bodies[:3]) for name in one["usage"]
        }
    assert len(record.ends) == 9


def test_a_stream_of_several_prompts_tells_its_choices_apart(pair):
    settings, texts = Settings(k=2, slots=2, capacity=64), ["SELECT id", "The "]
    body = {"prompt": texts, "max_tokens": 12, "seed": 5}

    (whole, streamed), _ = ask(pair, settings, [body, body | {"stream": True}])

    pieces = {0: "", 1: ""}
    for line in streamed.text.split("\n\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                pieces[choice["index"]] += choice["text"]
    assert list(pieces.values()) == [choice["text"] for choice in whole.json()["choices"]]


@pytest.mark.parametrize("prompts", [["a", ""], ["a", 3], ["a"] * 65, []])
def test_one_prompt_of_several_that_cannot_run_refuses_all_of_them(pair, prompts):
    (answer,), record = ask(pair, Settings(k=2, slots=1, capacity=64), [{"prompt": prompts}])

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"
    assert not record.admissions


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenised(pair, monkeypatch):
    encoded = []
    monkeypatch.setattr(Pair, "encode", lambda pair, text: encoded.append(text) or [1])
    settings = Settings(k=2, slots=1, capacity=64)
    longest = 64 * pair.longest_token()
    texts = ["a" * (longest + 1), "é" * (longest // 2 + 1), "a" * longest]

    answers, _ = ask(pair, settings, [{"prompt": text, "max_tokens": 1} for text in texts])

    assert [answer.status_code for answer in answers] == [400, 400, 200]
    assert encoded == texts[2:]


def test_a_long_text_is_tokenised_in_a_thread_and_not_in_the_event_loop(pair, monkeypatch):
    threads = []
    encode = Pair.encode

    def watched(pair, text):
        threads.append(threading.current_thread() is threading.main_thread())
        return encode(pair, text)

    monkeypatch.setattr(Pair, "encode", watched)
    bodies = [{"prompt": text, "max_tokens": 1} for text in ("a", "word " * 2000)]

    ask(pair, Settings(k=2, slots=1, capacity=400), bodies)

    assert threads == [True, False]


def test_metrics_hold_histograms_of_latency_and_acceptance_by_position(pair):
    settings, body = Settings(k=2, slots=1, capacity=64), {"prompt": "The", "max_tokens": 9}
    service = Service(pair, settings, "cpu")
    service.worker.start()

    async def talk():
        transport = httpx.ASGITransport(service.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            for _ in range(3):
                await client.post("/v1/completions", json=body | {"ignore_eos": True})
            return (await client.get("/metrics")).text

    text = asyncio.run(talk())
    service.worker.stop()

    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    names = ("queue", "time_to_first_token", "inter_token", "request")
    counts = {name: values[f"specscope_engine_{name}_seconds_count"] for name in names}
    assert counts == dict.fromkeys(names, "3")
    buckets = [int(value) for name, value in values.items() if "_request_seconds_bucket" in name]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 3
    positions = [
        tuple(float(values[f'specscope_engine_{name}_at_position_total{{position="{j}"}}'])
              for name in ("tested", "accepted")) for j in (1, 2)
    ]  # fmt: skip
    assert positions[0][1] == positions[1][0]
    assert sum(accepted for _, accepted in positions) == float(
        values["specscope_engine_accepted_tokens_total"]
    )


def test_a_server_that_drains_refuses_requests_and_says_so(pair):
    service = Service(pair, Settings(k=2, slots=1, capacity=64), "cpu")
    service.worker.start()

    async def talk():
        transport = httpx.ASGITransport(service.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            before = await client.get("/health")
            service.worker.drain()
            refused = await client.post("/v1/completions", json={"prompt": "a"})
            return before, refused, await client.get("/health")

    before, refused, after = asyncio.run(talk())
    service.worker.stop()

    assert (before.status_code, before.text) == (200, "ok")
    assert refused.status_code == after.status_code == 503
    assert after.text == "draining"
    assert service.worker.idle


@pytest.fixture(scope="module")
def wide(pair):
    """A service whose context holds a prompt of a megabyte."""
    config = ModelConfig(2048, 8, 1, 1, 1, 8, 8, max_context=600_100)
    models = [Decoder(config).ready() for _ in range(2)]
    own = Pair(*models, pair.tokenizer, 8, pair.eos, "wide")
    return Service(own, Settings(capacity=600_000, slots=1), "cpu")


async def longest_stall(service, body):
    """The longest time between two turns of the event loop, from a request's arrival until it is
    answered or waits in the engine; seconds of this process, which other processes do not add to.
    """
    gaps, queue = [0.0], service.worker.engine.queue

    async def tick():
        last = time.process_time()
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            gaps.append(now - last)
            last = now

    transport = httpx.ASGITransport(service.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        ticking = asyncio.create_task(tick())
        answer = asyncio.create_task(client.post("/v1/completions", content=body))
        while not queue and not answer.done():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in (ticking, answer):
            task.cancel()
        await asyncio.wait({ticking, answer})
    waited = len(queue)
    service.worker.engine.step()  # the client has gone: the request leaves the queue unread
    return waited, max(gaps)


@pytest.mark.parametrize("fits", [True, False])
def test_a_prompt_of_a_megabyte_does_not_stop_the_event_loop(pair, wide, fits):
    text = ("The quick brown fox writes SELECT * FROM orders WHERE id = 17; " * 17_000)[: 1 << 20]
    began = time.process_time()
    pair.encode(text)
    tokenising = time.process_time() - began
    service = wide if fits else Service(pair, Settings(slots=1), "cpu")
    body = json.dumps({"prompt": text}).encode()

    # A thread that must wait for a processor looks like a stall: the best of three counts.
    stalls = [asyncio.run(longest_stall(service, body)) for _ in range(3)]

    assert [waited for waited, _ in stalls] == [int(fits)] * 3
    assert min(stall for _, stall in stalls) < tokenising / 8
