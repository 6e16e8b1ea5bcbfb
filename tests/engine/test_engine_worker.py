"""The engine's thread: whoever asks is answered, also by an engine that ends, and nobody's stream
is another's."""

import asyncio

import pytest
from engine.tiny_models import prompts

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.errors import BadRequest
from specscope.engine.server.worker import EngineStopped, Worker

PATIENCE_S = 120
PARAMS = SamplingParams(temperature=0.0, max_new_tokens=8)


@pytest.fixture
def worker(target, draft):
    worker = Worker(
        Engine(target, ModelDrafter(draft), k_max=2, slots=2, capacity=60, gate=fixed_gate(2))
    )
    yield worker
    if worker.thread.is_alive():
        worker.stop()


async def generation(worker, id_, prompt):
    """The tokens of an answer."""
    ids = []
    async for chunk in worker.generate(id_, prompt, PARAMS, "", ""):
        ids += chunk.ids
    return ids


def within_patience(work):
    return asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def test_a_request_that_comes_in_while_the_engine_stops_is_told_so(worker):
    submit = worker.engine.submit

    def too_late(*args):
        worker.stop()  # after the request was let in, before the engine knows it
        submit(*args)

    worker.engine.submit = too_late
    worker.start()

    with pytest.raises(EngineStopped, match="told to stop"):
        within_patience(generation(worker, "a", [1, 2, 3]))
    with pytest.raises(EngineStopped, match="not running"):
        within_patience(generation(worker, "b", [1, 2, 3]))


def test_an_id_in_use_is_refused_and_the_one_that_has_it_is_answered(worker):
    prompt, other = prompts([5, 6])

    async def both():
        first = worker.generate("a", prompt, PARAMS, "", "")
        waiting = asyncio.ensure_future(anext(first))
        await asyncio.sleep(0)  # it has been submitted
        with pytest.raises(BadRequest, match="running already"):
            await generation(worker, "a", other)
        worker.start()
        chunks = [await waiting] + [chunk async for chunk in first]
        return sum(len(chunk.ids) for chunk in chunks), chunks[-1].end.reason

    assert within_patience(both()) == (8, "length")


def test_a_refused_request_takes_nothing_from_the_next_of_its_id(worker):
    with pytest.raises(BadRequest, match="at most"):
        within_patience(generation(worker, "a", [1] * 100))
    worker.start()

    assert len(within_patience(generation(worker, "a", [1, 2, 3]))) == 8
