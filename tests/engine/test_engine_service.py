"""The served engine without a process or a port around it."""

import asyncio
import json
from argparse import ArgumentParser

import httpx
import pytest
import torch
from engine.tiny_models import Record

from specscope.engine.cli import add_parser
from specscope.engine.errors import BadSetting
from specscope.engine.pair import load_bundled
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


@pytest.mark.parametrize(("graphs", "shapes"), [(True, 8), (None, 0), (False, 0)])
def test_what_a_server_warms_up_follows_its_limits(pair, graphs, shapes):
    settings = Settings(k=2, slots=1, capacity=64, graphs=graphs)

    # One row of 64 positions or of all 67, greedy or sampled, drafted and verified.
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
