"""What cannot be computed is refused by name, and so is what is damaged."""

import json
from dataclasses import replace

import pytest
import torch
from engine.tiny_models import TINY, Record, tiny_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from specscope.engine.api import SamplingParams, fixed_gate
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.errors import BadCheckpoint, BadSetting, IncompatiblePair, UnsupportedModel
from specscope.engine.model.checkpoint import load_checkpoint, save_weights
from specscope.engine.model.config import parse_config, write_config
from specscope.engine.pair import load_checkpoints

BASE = {
    "model_type": "llama", "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
}  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    write_config(TINY, tmp_path / "config.json")
    save_weights(tiny_model(0), tmp_path / "model.safetensors", torch.float64)
    return tmp_path


def test_weights_read_back_give_the_same_logits(saved):
    text = torch.tensor([[1, 2, 3, 4]])

    loaded = load_checkpoint(saved, torch.float64)

    assert torch.equal(loaded.score(text), tiny_model(0).score(text))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "gemma3"}, "gemma3"),
        ({"model_type": "mixtral"}, "mixtral"),
        ({"sliding_window": 4096, "use_sliding_window": True}, "sliding window"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"num_experts": 8}, "mixture of experts"),
        ({"mlp_bias": True}, "bias in the feed-forward"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"partial_rotary_factor": 0.5}, "partial rotary"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(change, reason):
    with pytest.raises(UnsupportedModel, match=reason):
        parse_config(BASE | change)


def test_a_qwen2_that_does_not_use_its_sliding_window_is_taken():
    config = parse_config(
        BASE | {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}
    )

    assert config.qkv_bias


def test_a_missing_entry_is_named():
    with pytest.raises(BadCheckpoint, match="hidden_size"):
        parse_config({key: value for key, value in BASE.items() if key != "hidden_size"})


def test_missing_and_damaged_weights_are_named(saved):
    weights = saved / "model.safetensors"
    tensors = load_file(weights)
    name = "model.layers.1.mlp.up_proj.weight"

    save_file({key: value for key, value in tensors.items() if key != name}, weights)
    with pytest.raises(BadCheckpoint, match=r"layers\.1\.mlp\.up_proj"):
        load_checkpoint(saved)

    save_file(tensors | {name: torch.zeros(3, 3)}, weights)
    with pytest.raises(BadCheckpoint, match=r"\(3, 3\)"):
        load_checkpoint(saved)

    weights.write_bytes(b"\x10" * 50)
    with pytest.raises(BadCheckpoint, match="damaged"):
        load_checkpoint(saved)

    weights.unlink()
    with pytest.raises(BadCheckpoint, match="no weights"):
        load_checkpoint(saved)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there_is_named(saved, device):
    with pytest.raises(BadSetting, match=device):
        load_checkpoint(saved, device=device)


def test_a_config_that_is_missing_or_not_json_is_named(tmp_path):
    with pytest.raises(BadCheckpoint, match="no configuration"):
        load_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadCheckpoint, match="not JSON"):
        load_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(BASE))
    with pytest.raises(BadCheckpoint, match="no weights"):
        load_checkpoint(tmp_path)


def padded(directory, vocab, tokens, tied):
    """A checkpoint of `vocab` tokens, with a tokenizer that uses `tokens` of them."""
    config = replace(TINY, vocab=vocab, tied=tied)
    directory.mkdir()
    write_config(config, directory / "config.json", eos_token_id=0, bos_token_id=0)
    save_weights(tiny_model(vocab, config), directory / "model.safetensors", torch.float64)
    words = {f"w{index}": index for index in range(tokens)}
    Tokenizer(models.WordLevel(words, unk_token="w0")).save(str(directory / "tokenizer.json"))
    return directory


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("large", "small"), [("target", "draft"), ("draft", "target")])
def test_vocabularies_that_differ_in_padding_are_cut_to_the_smaller(tmp_path, large, small, tied):
    paths = {large: padded(tmp_path / large, 70, 61, tied)}
    paths[small] = padded(tmp_path / small, 64, 61, tied)

    pair = load_checkpoints(paths["target"], paths["draft"], torch.float64)

    text = torch.tensor([[1, 2, 60, 4]])
    cut = {"target": pair.target, "draft": pair.draft}
    assert pair.target.config.vocab == pair.draft.config.vocab == 64
    for name, path in paths.items():
        whole = load_checkpoint(path, torch.float64).score(text)[..., :64]
        assert torch.allclose(cut[name].score(text), whole, rtol=0, atol=1e-12)


def test_a_tokenizer_that_uses_what_would_be_cut_makes_no_pair(tmp_path):
    target, draft = padded(tmp_path / "t", 70, 65, True), padded(tmp_path / "d", 64, 65, True)

    with pytest.raises(IncompatiblePair, match=r"70 tokens, draft 64.* uses 65"):
        load_checkpoints(target, draft)


def test_a_text_is_the_same_with_and_without_the_draft_of_a_cut_pair(tmp_path):
    target, draft = padded(tmp_path / "t", 70, 61, True), padded(tmp_path / "d", 64, 61, True)
    pair = load_checkpoints(target, draft, torch.float64)
    texts = []
    for k in (0, 3):
        record = Record()
        engine = Engine(
            pair.target, ModelDrafter(pair.draft), k_max=3, slots=2, capacity=60,
            gate=fixed_gate(k), observers=[record],
        )  # fmt: skip
        engine.submit("a", [1, 2, 3], SamplingParams(temperature=1.0, seed=5, max_new_tokens=40))
        while engine.step():
            pass
        texts.append(record.texts)

    assert texts[0] == texts[1]
