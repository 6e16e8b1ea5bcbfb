"""The kernels of a GPU, run in Triton's interpreter, give what the torch path gives."""

import os

import pytest
import torch

os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from engine.tiny_models import prompts, run, tiny_model

from specscope.engine.api import SamplingParams
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.model import decoder, kernels, layers
from specscope.engine.model.layers import rotate


@pytest.mark.parametrize(("rows", "width"), [(1, 7), (5, 1100), (3, 2048)])
def test_silu_times_up_in_one_kernel(rows, width):
    pair = torch.randn(rows, 2 * width, generator=torch.Generator().manual_seed(1))
    gate, up = pair.chunk(2, -1)

    torch.testing.assert_close(kernels.silu_mul(pair), torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize(("heads", "kv", "width"), [(4, 2, 64), (3, 3, 80), (8, 1, 128)])
def test_rotation_and_the_cache_write_in_one_kernel(heads, kv, width):
    generator, tokens, capacity = torch.Generator().manual_seed(2), 5, 11
    joint = torch.randn(tokens, heads + 2 * kv, width, generator=generator)
    angles = torch.randn(tokens, 2, 1, width, generator=generator)
    cos, sin = angles.unbind(1)
    cache, size = torch.zeros(2 * 3 * kv * capacity, width), tokens * 2 * kv
    places = torch.randperm(len(cache), generator=generator)[:size].view(tokens, 2 * kv)

    q = kernels.rotate_and_write(joint, cos, sin, places, cache)

    turned = rotate(joint[:, : heads + kv], cos, sin)
    torch.testing.assert_close(q, turned[:, :heads])
    written = torch.cat((turned[:, heads:], joint[:, heads + kv :]), 1)
    torch.testing.assert_close(cache[places], written)
    assert (cache.abs().sum(1) > 0).sum() == size


def test_a_model_by_kernels_writes_the_texts_of_the_torch_path(monkeypatch):
    texts, params = prompts((5, 3)), SamplingParams(max_new_tokens=6)

    def texts_of():
        model = tiny_model(0, dtype=torch.float32)
        return model, run(model, ModelDrafter(model), texts, params, gate=2).texts

    _, plain = texts_of()
    for module in (layers, decoder):
        monkeypatch.setattr(module, "gpu_kernels", lambda weight: kernels)
    model, fused = texts_of()

    assert model.fused[0].kernels is model.fused[0].attention.kernels is kernels
    assert fused == plain
