"""Model configurations from config.json files; unsupported features are refused by name."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specscope.engine.errors import BadCheckpoint, UnsupportedModel

FAMILIES = ("llama", "qwen2", "qwen3")
ROPES = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position encoding; `factor` is read by linear and llama3, the rest by llama3."""

    kind: str = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of a Llama-like decoder."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ff: int
    max_context: int
    family: str = "llama"
    norm_eps: float = 1e-5
    rope: Rope = Rope()
    tied: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False


def read_config(path: Path) -> ModelConfig:
    """The configuration in `path` (a config.json).

    Raises BadCheckpoint if it is missing or not JSON, UnsupportedModel if it names a feature
    that would silently change the logits were it ignored.
    """
    try:
        raw = json.loads(path.read_text())
    except OSError as error:
        raise BadCheckpoint(f"no configuration at {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadCheckpoint(f"{path} is not JSON: {error}") from error
    return parse_config(raw)


def parse_config(raw: dict[str, Any]) -> ModelConfig:
    """`raw` as a ModelConfig; raises as `read_config` does."""
    family = raw.get("model_type", "")
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise UnsupportedModel(f"model_type {family!r} is not supported; supported are {known}")
    _refuse(raw)
    try:
        heads = raw["num_attention_heads"]
        return ModelConfig(
            vocab=raw["vocab_size"],
            hidden=raw["hidden_size"],
            layers=raw["num_hidden_layers"],
            heads=heads,
            kv_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            ff=raw["intermediate_size"],
            max_context=raw.get("max_position_embeddings", 2048),
            family=family,
            norm_eps=raw.get("rms_norm_eps", 1e-6),
            rope=_rope(raw),
            tied=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=family == "qwen2" or bool(raw.get("attention_bias", False)),
            o_bias=family != "qwen2" and bool(raw.get("attention_bias", False)),
            qk_norm=family == "qwen3",
        )
    except KeyError as error:
        raise BadCheckpoint(f"the configuration lacks {error.args[0]!r}") from error


def write_config(config: ModelConfig, path: Path, **extra: object) -> None:
    """Write `config` as a config.json that Hugging Face's loaders read as well."""
    names = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    rope: dict[str, object] = {"rope_type": config.rope.kind, "rope_theta": config.rope.theta}
    if config.rope.kind != "default":
        rope["factor"] = config.rope.factor
    if config.rope.kind == "llama3":
        rope["low_freq_factor"] = config.rope.low_freq_factor
        rope["high_freq_factor"] = config.rope.high_freq_factor
        rope["original_max_position_embeddings"] = config.rope.original_context
    raw: dict[str, object] = {
        "architectures": [names[config.family]],
        "model_type": config.family,
        "hidden_act": "silu",
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ff,
        "max_position_embeddings": config.max_context,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope.theta,
        "rope_parameters": rope,
        "tie_word_embeddings": config.tied,
        "attention_bias": config.o_bias,
        **extra,
    }
    path.write_text(json.dumps(raw, indent=2) + "\n")


def _refuse(raw: dict[str, Any]) -> None:
    refused = {
        "a sliding window": raw.get("use_sliding_window", raw.get("model_type") not in FAMILIES)
        and raw.get("sliding_window"),
        "quantised weights": raw.get("quantization_config"),
        "a mixture of experts": raw.get("num_experts") or raw.get("num_local_experts"),
        "a bias in the feed-forward part": raw.get("mlp_bias"),
        "tensor-parallel pretraining slices": raw.get("pretraining_tp", 1) != 1,
        f"activation {raw.get('hidden_act')!r}": raw.get("hidden_act", "silu") != "silu",
        "soft-capped logits": raw.get("final_logit_softcapping"),
    }
    layer_types = set(raw.get("layer_types") or ()) - {"full_attention"}
    refused[f"layers of type {sorted(layer_types)}"] = layer_types
    found = [name for name, present in refused.items() if present]
    if found:
        raise UnsupportedModel(f"the checkpoint needs {' and '.join(found)}, which is not computed")


def _rope(raw: dict[str, Any]) -> Rope:
    given = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ROPES:
        known = ", ".join(ROPES)
        raise UnsupportedModel(f"rope type {kind!r} is not supported; supported are {known}")
    if given.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise UnsupportedModel("partial rotary embeddings are not computed")
    return Rope(
        kind=kind,
        theta=given.get("rope_theta", raw.get("rope_theta", 10_000.0)),
        factor=given.get("factor", 1.0),
        low_freq_factor=given.get("low_freq_factor", 1.0),
        high_freq_factor=given.get("high_freq_factor", 4.0),
        original_context=given.get("original_max_position_embeddings", 8192),
    )
