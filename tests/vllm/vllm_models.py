"""Makes tiny random Qwen3 models with one tokenizer: `vllm_models.py DIRECTORY`, and
a LoRA adapter for `target`: `vllm_models.py --adapter DIRECTORY`.

Runs inside vLLM's environment.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEXT = "The quick brown fox jumps over the lazy dog. SELECT a, b FROM t WHERE c = 1;\n" * 40


def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<eos>", "<pad>"], initial_alphabet=alphabet
    )
    made.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>", pad_token="<pad>")


def model(directory: Path, layers: int, seed: int) -> None:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=1,
        dtype="bfloat16",
    )
    made = Qwen3ForCausalLM(config).to(torch.bfloat16)
    made.save_pretrained(directory)
    tokenizer().save_pretrained(directory)


def adapter(directory: Path, rank: int = 8) -> None:
    """Of the first layer's query projection alone: from 64 to 2 heads of 32."""
    torch.manual_seed(2)
    directory.mkdir(parents=True)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": ["q_proj"]}
    (directory / "adapter_config.json").write_text(json.dumps(settings | {"bias": "none"}))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    save_file(
        {name.format("A"): torch.randn(rank, 64), name.format("B"): torch.randn(64, rank)},
        directory / "adapter_model.safetensors",
    )


if __name__ == "__main__":
    if sys.argv[1] == "--adapter":
        adapter(Path(sys.argv[2]))
        sys.exit()
    out = Path(sys.argv[1])
    model(out / "target", 2, 0)
    model(out / "draft", 1, 1)
