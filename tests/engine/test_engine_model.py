"""The decoder with its cache gives what whole texts give, however a text is cut into passes."""

from dataclasses import replace

import pytest
import torch
from engine.tiny_models import TINY, prompts, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from specscope.engine.model.config import Rope
from specscope.engine.model.kv_cache import KVCache, rounded
from specscope.engine.model.layers import ALIGNED, split_attend, splits_of
from specscope.engine.model.layout import Buckets, hidden, lay_out, pack


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=6))
def test_cutting_texts_into_ragged_passes_changes_no_logit(passes):
    passes = [widths for widths in passes if any(widths)]
    totals = [sum(widths[row] for widths in passes) for row in range(3)]
    model = tiny_model(0)
    texts = prompts([total + 1 for total in totals])
    cache = KVCache(model.config, 3, 64, "cpu", model.dtype)
    done = [0, 0, 0]

    for widths in passes:
        packing = pack(tuple(widths), "cpu")
        positions = torch.tensor(done)[packing.token_rows] + packing.offsets
        plan = lay_out(packing, positions, (40,), model.config, model.dtype)
        fed = [t for row in range(3) for t in texts[row][done[row] : done[row] + widths[row]]]
        logits = model.logits(model(torch.tensor(fed), cache, plan))
        done = [d + w for d, w in zip(done, widths, strict=True)]

        for row in range(3):
            whole = model.score(torch.tensor([texts[row][: done[row]]])) if done[row] else None
            mine = logits[packing.token_rows == row]
            if len(mine):
                torch.testing.assert_close(mine, whole[0, -len(mine) :], rtol=0, atol=1e-12)


def test_a_block_gives_what_its_tokens_give_one_by_one():
    model = tiny_model(1)
    text = prompts((9,))[0]
    whole = model.score(torch.tensor([text]))[0]
    cache = KVCache(model.config, 1, 16, "cpu", model.dtype)

    for place, token in enumerate(text):
        plan = lay_out(pack((1,), "cpu"), torch.tensor([place]), (16,), model.config, model.dtype)
        logits = model.logits(model(torch.tensor([token]), cache, plan))
        torch.testing.assert_close(logits[0], whole[place], rtol=0, atol=1e-12)


@pytest.mark.parametrize("splits", [1, 2, 8])
@pytest.mark.parametrize("queries", [1, 5])
def test_attention_in_splits_is_attention(splits, queries):
    generator = torch.Generator().manual_seed(3)
    cache = torch.randn(2, 3, 96, 8, generator=generator, dtype=torch.float64)
    q = torch.randn(3, queries, 8, generator=generator, dtype=torch.float64)
    keys, values = cache[0, :, :64], cache[1, :, :64]
    # Of the last row the first split is all that any query sees.
    reach = torch.tensor([40, 63, 3])[:, None, None]
    mask = (
        torch.where(torch.arange(64) <= reach, 0.0, hidden(torch.float64))
        .double()
        .expand(-1, queries, -1)
    )

    out = split_attend(q, keys, values, mask.contiguous(), splits)

    expected = torch.nn.functional.scaled_dot_product_attention(q, keys, values, mask)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("rows", "extent", "splits"), [(1, 8192, 32), (1, 512, 2), (1, 256, 1)])
def test_a_single_sequence_keeps_a_whole_gpu_busy(rows, extent, splits):
    assert splits_of(rows * 8, 4, extent) == splits
    assert splits_of(64 * 8, 4, extent) == 1


@pytest.mark.parametrize("capacity", [100, 517, 1025, 2053, 8304, 9001, 131_072])
def test_splits_of_every_extent_are_aligned_and_a_long_row_is_split(capacity):
    buckets = Buckets(16, 4, rounded(capacity))

    for extent in buckets.extents:
        splits = splits_of(8, 4, extent)
        assert extent % (splits * ALIGNED) == 0
        assert splits >= min(16, extent // 512)


def test_a_packing_counts_what_it_pads():
    packing = pack((2, 0, 3), "cpu", first=4)

    assert packing.token_rows.tolist() == [4, 4, 6, 6, 6]
    assert packing.offsets.tolist() == [0, 1, 0, 1, 2]
    assert packing.rectangle.places.tolist() == [0, 1, 6, 7, 8]
    assert (packing.shape.tokens, packing.padding) == (5, 4)
    assert pack((2, 2), "cpu").padding == 0


HF = {
    "llama": replace(TINY, vocab=97, tied=False),
    "llama, tied, biased": replace(TINY, vocab=97, qkv_bias=True, o_bias=True),
    "llama, linear rope": replace(TINY, vocab=97, rope=Rope("linear", factor=4.0)),
    "llama, llama3 rope": replace(TINY, vocab=97, rope=Rope("llama3", 10_000.0, 8.0, 1.0, 4.0, 64)),
    "llama, wide heads": replace(TINY, vocab=97, head_dim=16),
    "qwen2": replace(TINY, vocab=97, family="qwen2", qkv_bias=True),
    "qwen3": replace(TINY, vocab=97, family="qwen3", qk_norm=True, head_dim=16, tied=False),
}


@pytest.mark.parametrize("kind", HF)
@pytest.mark.parametrize("first", [0, 1])
def test_cached_passes_of_every_family_give_the_logits_of_whole_texts(kind, first):
    model, text = tiny_model(4, HF[kind]), prompts((12,), vocab=97)[0]
    generator = torch.Generator().manual_seed(8)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            noise = torch.randn(len(parameter), generator=generator, dtype=torch.float64)
            parameter.add_(0.2 * noise)
    model.ready()
    whole = model.score(torch.tensor([text]))[0]
    cache = KVCache(model.config, 2, 16, "cpu", model.dtype)

    for start, stop in ((0, 5), (5, 6), (6, 12)):
        packing = pack((stop - start,), "cpu", first)
        row_plan = cache.lay_out_row(packing, start)
        plan = lay_out(packing, cache.positions[start:stop], (14,), model.config, model.dtype)
        for one in (row_plan, plan):
            logits = model.logits(model(torch.tensor(text[start:stop]), cache, one))
            torch.testing.assert_close(logits, whole[start:stop], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", HF)
@pytest.mark.parametrize("sharded", [False, True])
def test_logits_agree_with_transformers(kind, sharded, tmp_path):
    transformers = pytest.importorskip("transformers")
    from specscope.engine.model.checkpoint import load_checkpoint
    from specscope.engine.model.config import write_config

    config = HF[kind]
    write_config(config, tmp_path / "config.json")
    theirs = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(tmp_path), dtype=torch.float32
    ).eval()
    generator = torch.Generator().manual_seed(5)
    for parameter in theirs.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
        parameter.data += 1.0 if parameter.dim() == 1 else 0.0
    theirs.save_pretrained(tmp_path, max_shard_size="20kB" if sharded else "5GB")
    text = torch.tensor(prompts((150,), vocab=97))

    ours = load_checkpoint(tmp_path).score(text)

    assert (tmp_path / "model.safetensors.index.json").exists() == sharded
    with torch.inference_mode():
        torch.testing.assert_close(ours, theirs(text).logits, rtol=0, atol=1e-4)


def test_a_config_of_ours_reads_back_as_it_was(tmp_path):
    from specscope.engine.model.config import read_config, write_config

    for config in HF.values():
        write_config(config, tmp_path / "config.json")

        assert read_config(tmp_path / "config.json") == config
