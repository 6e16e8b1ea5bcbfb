"""A whole round on the meta device, where every wait for the device's values raises."""

from dataclasses import replace

import pytest
import torch
from engine.head_plants import HEAD
from engine.plain_decoding import decode_plainly
from engine.tiny_models import TINY, near, prompts, random_gate, run, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specscope.engine.api import RequestInfo, SamplingParams
from specscope.engine.decode import in_flight, model_runner
from specscope.engine.decode.batch import Batch, BatchState, sampling_needs
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.eagle import EagleDrafter
from specscope.engine.decode.graphs import EagerReplay, Graphs
from specscope.engine.decode.model_runner import ModelRunner
from specscope.engine.decode.round import run_round
from specscope.engine.decode.timing import HostTimer
from specscope.engine.model import layers as attention
from specscope.engine.model.decoder import Decoder, EagleHead
from specscope.engine.model.kv_cache import KVCache
from specscope.engine.model.layers import FusedNorm
from specscope.engine.model.layout import Buckets

MIXED = [
    SamplingParams(),
    SamplingParams(temperature=1.0, mode="rejection", top_p=0.9),
    SamplingParams(temperature=1.0, mode="coupled", top_k=5),
]


def meta_round(ks, params=MIXED, drafter_class=ModelDrafter, forced=None, graphs=None):
    with torch.device("meta"):
        models = [Decoder(TINY).ready() for _ in range(2)]
        head, state = EagleHead(HEAD).ready(), BatchState(4, 64, 4, "meta")
    heads = drafter_class is EagleDrafter
    drafter = EagleDrafter(head, models[0]) if heads else drafter_class(models[1])
    drafter.open(4, 64, 4, "meta")
    for row in range(3):
        drafter.admitted(row, [1] * 9)
    cache = KVCache(TINY, 4, 69, "meta", torch.float32)
    needs = sampling_needs(params[0])
    for own in params:
        needs |= sampling_needs(own)
    infos = [RequestInfo(str(row), "", 9, own, 0) for row, own in enumerate(params)]
    batch = Batch(state, needs, infos, [[1] * 9] * 3, 10, graphs)
    return run_round(
        ModelRunner(models[0], cache, drafter.features), drafter, batch, ks, HostTimer(), forced
    )


@pytest.mark.parametrize("drafter", [ModelDrafter, EagleDrafter])
@pytest.mark.parametrize("ks", [(0, 0, 0), (4, 4, 4), (0, 3, 1)])
def test_no_part_of_a_round_waits_for_the_device(ks, drafter):
    outcome = meta_round(ks, drafter_class=drafter)

    assert outcome.result.is_meta
    assert outcome.result.shape == (3, max(ks) + 3)


def test_reading_prompts_between_rounds_does_not_wait_either():
    with torch.device("meta"):
        model, state = Decoder(TINY).ready(), BatchState(3, 64, 4, "meta")
    target = ModelRunner(model, KVCache(TINY, 3, 69, "meta", torch.float32))
    texts = [[1] * 30, [2] * 9]

    state.admit(1, [(text, 40, SamplingParams()) for text in texts])
    target.prefill(state, 1, [7, 0], [11, 8], chunk=8)
    state.move([2, 1], [0, 2])

    assert state.tokens.is_meta


def test_synthetic_acceptance_does_not_wait_either():
    forced = torch.ones(4, device="meta")

    assert meta_round((2, 0, 4), forced=forced).result.is_meta


class NoHost(TorchDispatchMode):
    """Raises where a tensor of the host takes part: in a CUDA graph it would be a copy."""

    operations = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for one in tree_leaves((args, kwargs or {}, out)):
            if isinstance(one, torch.Tensor) and not one.is_meta:
                raise AssertionError(f"{function} touches the host: {tuple(one.shape)}")
        NoHost.operations += 1
        return out


def guarded(work):
    """What replays do, under the guard."""

    def watched(parts):
        with NoHost():
            return work(parts)

    return EagerReplay(watched)


@pytest.fixture
def gpu_ways(monkeypatch):
    """Attention and norms by the kernels that a GPU takes."""
    monkeypatch.setattr(attention, "FEW_QUERIES", 0)
    monkeypatch.setattr(FusedNorm, "library", True)


@pytest.mark.parametrize("ks", [(0, 0, 0), (4, 4, 4), (0, 3, 1)])
@pytest.mark.usefixtures("gpu_ways")
def test_no_tensor_of_the_host_takes_part_in_what_a_graph_would_capture(ks):
    graphs, NoHost.operations = Graphs(Buckets(3, 4, 69), guarded, HostTimer()), 0

    with graphs.capturing():
        for _ in range(2):  # eagerly, and replayed
            assert meta_round(ks, graphs=graphs, forced=torch.ones(4, device="meta")).result.is_meta

    # Noise and verification, and two kinds of drafting steps.
    assert len(graphs.shapes) == (4 if any(ks) else 2)
    assert NoHost.operations > 100


def test_a_tensor_of_the_host_in_captured_work_would_be_seen():
    class Host(ModelDrafter):
        def draw(self, *args):
            torch.arange(3)
            return super().draw(*args)

    graphs = Graphs(Buckets(3, 4, 69), guarded, HostTimer())
    meta_round((1, 1, 1), drafter_class=Host, graphs=graphs)

    with pytest.raises(AssertionError, match="touches the host"), graphs.capturing():
        meta_round((1, 1, 1), drafter_class=Host, graphs=graphs)


@pytest.mark.usefixtures("gpu_ways")
@pytest.mark.parametrize("graphs", [False, True])
def test_a_gpus_kernels_give_the_same_texts(graphs):
    target, generation = tiny_model(0), SamplingParams(max_new_tokens=12)
    texts = prompts((1, 2, 3, 5, 9, 14, 30, 7, 2))

    record = run(target, ModelDrafter(near(target, 0.05)), texts, generation, gate=3, graphs=graphs)

    assert record.texts == {
        str(index): decode_plainly(target, text, generation, 120)[0]
        for index, text in enumerate(texts)
    }


@pytest.mark.usefixtures("gpu_ways")
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("slots", [1, 4])
def test_attention_on_a_gpu_is_given_aligned_tensors(monkeypatch, graphs, slots):
    """The memory-efficient kernel raises if rows, heads or pointers are not aligned."""
    splits, fused = set(), attention.fused_attention

    def checked(q, keys, values, mask):
        for x in (q, keys, values, mask):
            steps = [step for size, step in zip(x.shape[:3], x.stride(), strict=False) if size > 1]
            assert all(step % 8 == 0 for step in [x.storage_offset(), *steps])
            assert x.stride(3) == 1
        splits.add(mask.shape[1])
        return fused(q, keys, values, mask)

    monkeypatch.setattr(attention, "fused_attention", checked)
    for module in (model_runner, in_flight):
        monkeypatch.setattr(module, "is_gpu", lambda _: True)
    target = tiny_model(0, replace(TINY, max_context=2048))
    texts, params = prompts((3, 700, 40, 1)), SamplingParams(max_new_tokens=9)

    record = run(
        target, ModelDrafter(target), texts, params, gate=random_gate(4), slots=slots,
        capacity=1100, graphs=graphs,
    )  # fmt: skip

    assert record.acceptance == 1.0
    assert len(splits) > 1


@pytest.mark.parametrize("waiting", [lambda t: t.tolist(), lambda t: t.sum().item(), bool])
def test_a_wait_in_the_round_would_be_seen(waiting):
    class Waiting(ModelDrafter):
        def propose(self, batch, ks):
            proposal = super().propose(batch, ks)
            waiting(batch.state.tokens[0, 0] > 0 if waiting is bool else batch.state.tokens)
            return proposal

    with pytest.raises((RuntimeError, NotImplementedError)):
        meta_round((1, 1, 1), drafter_class=Waiting)
