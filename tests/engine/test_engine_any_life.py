"""Whatever happens to an engine, a text is what its target alone would have said.

Requests of all kinds come, are cancelled, put back and read again, under drafters of all kinds and
a k that changes every round; each output is held against decoding that knows nothing of all that.
"""

from dataclasses import dataclass

import pytest
import torch
from engine.head_plants import random_head
from engine.plain_decoding import decode_plainly, letters
from engine.tiny_models import Record, near, prompts, random_gate, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

import specscope.engine.decode.scheduler as budgets
from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode import round as round_module
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.eagle import EagleDrafter
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.drafters.replay import ReplayDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.decode.verify import verify_proposals

CAPACITY = 60
TARGET = tiny_model(0)
DRAFT = near(TARGET, 0.05)
HEAD = random_head()


@dataclass(frozen=True)
class GenerationRequest:
    """A request, and after how many rounds it comes and is cancelled (never: None)."""

    prompt: tuple[int, ...]
    params: SamplingParams
    comes: int
    goes: int | None


@dataclass(frozen=True)
class Setting:
    """How the engine is built."""

    drafter: str
    k_max: int
    k: int | None  # None: another one for each row in each round
    slots: int
    depth: int
    graphs: bool
    prefill_tokens: int
    cache_tokens: int | None
    room: int


@st.composite
def requests(draw):
    length = draw(st.integers(1, 45))
    repeating = draw(st.booleans())  # so that prompt lookup finds something
    text = prompts((min(length, 4) if repeating else length,), seed=draw(st.integers(0, 99)))[0]
    params = SamplingParams(
        # All of them are numbers that float32 holds exactly.
        temperature=draw(st.sampled_from((0.0, 0.5, 1.0, 1.25))),
        top_p=draw(st.sampled_from((1.0, 0.875, 0.5))),
        top_k=draw(st.sampled_from((0, 0, 1, 5))),
        seed=draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        max_new_tokens=draw(st.integers(1, 30)),
        mode=draw(st.sampled_from(("coupled", "coupled", "greedy", "rejection"))),
        stop=draw(st.sampled_from(((), (), ("a",), ("ab", "cde", "q")))),
        eos=draw(st.sampled_from(((), (7, 11), (3,)))),
    )
    goes = draw(st.none() | st.none() | st.integers(0, 12))
    return GenerationRequest(
        tuple((text * length)[:length]), params, draw(st.integers(0, 12)), goes
    )


@st.composite
def engine_settings(draw):
    k_max = draw(st.integers(1, 5))
    alone = CAPACITY + k_max + 1
    return Setting(
        drafter=draw(st.sampled_from(("draft", "itself", "head", "ngram", "replay"))),
        k_max=k_max,
        k=draw(st.none() | st.integers(0, k_max)),
        slots=draw(st.integers(1, 5)),
        depth=draw(st.integers(0, 2)),
        graphs=draw(st.booleans()),
        prefill_tokens=draw(st.sampled_from((1, 7, 30, 2048))),
        cache_tokens=draw(st.sampled_from((None, alone, alone + 9, alone + 40))),
        room=draw(st.sampled_from((0, 0, 4))),
    )


def drafter_of(name, truth):
    if name == "replay":
        completions = {id: output for id, (output, _) in truth.items()}
        return ReplayDrafter(completions, [0.9, 0.7, 0.5, 0.5, 0.5], vocab=61)
    return {
        "draft": lambda: ModelDrafter(DRAFT),
        "itself": lambda: ModelDrafter(TARGET),
        "head": lambda: EagleDrafter(HEAD, TARGET),
        "ngram": lambda: NgramDrafter(3, 1),
    }[name]()


def live(setting, generation, truth):
    """All of `generation` through one engine."""
    record = Record()
    gate = random_gate(setting.k_max) if setting.k is None else fixed_gate(setting.k)
    engine = Engine(
        TARGET, drafter_of(setting.drafter, truth), k_max=setting.k_max, slots=setting.slots,
        capacity=CAPACITY, gate=gate, observers=[record], detokenize=letters,
        depth=setting.depth, graphs=setting.graphs, prefill_tokens=setting.prefill_tokens,
        cache_tokens=setting.cache_tokens,
    )  # fmt: skip
    rounds, last = 0, max(max(one.comes, one.goes or 0) for one in generation)
    while rounds <= last or not engine.idle:
        for index, one in enumerate(generation):
            if one.comes == rounds:
                engine.submit(str(index), one.prompt, one.params)
            if one.goes == rounds:
                engine.abort(str(index))
        engine.step()
        rounds += 1
        assert rounds < 3000
    return record, engine


@settings(max_examples=50)
@given(engine_settings(), st.lists(requests(), min_size=1, max_size=8))
def test_every_text_is_what_the_target_alone_would_have_said(setting, generation):
    truth = {
        str(index): decode_plainly(TARGET, one.prompt, one.params, CAPACITY)
        for index, one in enumerate(generation)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budgets, "HEADROOM_ROUNDS", setting.room)
        record, engine = live(setting, generation, truth)

    assert set(record.ends) == set(truth)
    for id, (output, reason) in truth.items():
        end, params = record.ends[id], generation[int(id)].params
        if params.mode == "rejection" and not params.greedy:
            assert len(end.token_ids) <= params.max_new_tokens  # its law is tested elsewhere
        elif end.reason == "abort":
            assert end.token_ids == output[: len(end.token_ids)]
            assert generation[int(id)].goes is not None
        else:
            assert (end.token_ids, end.reason) == (output, reason)
    emitted = [sum(r.emitted[r.requests.index(id)] for r in record.rounds if id in r.requests)
               for id in truth]  # fmt: skip
    assert emitted == [record.ends[id].output_tokens for id in truth]
    assert engine.idle
    assert not engine.known


def test_proposals_that_stand_unverified_are_seen(monkeypatch):
    forced = torch.ones(3)
    monkeypatch.setattr(
        round_module, "verify_proposals", lambda *args: verify_proposals(*args[:4], forced)
    )
    one = GenerationRequest((1, 2, 3), SamplingParams(max_new_tokens=30), 0, None)
    truth = {"0": decode_plainly(TARGET, one.prompt, one.params, CAPACITY)}
    setting = Setting("draft", 3, 3, 1, 0, False, 2048, None, 4)

    record, _ = live(setting, [one], truth)

    assert record.ends["0"].token_ids != truth["0"][0]
