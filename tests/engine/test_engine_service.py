"""The served engine without a process or a port around it."""

import asyncio
import json
from argparse import ArgumentParser

import pytest
import torch

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
