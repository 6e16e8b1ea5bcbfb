"""Reads and writes weights as safetensors files, single or sharded, with Hugging Face's names."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from specscope.engine.errors import BadCheckpoint
from specscope.engine.model.config import read_config, write_config
from specscope.engine.model.decoder import Decoder, EagleHead
from specscope.engine.model.device import check_device


def load_checkpoint(
    directory: Path,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    vocab: int | None = None,
) -> Decoder:
    """The model in `directory`: config.json and model.safetensors, or an index of shards.

    vocab: keep the first so many tokens; the rest is padding that no text uses.
    Raises UnsupportedModel for what we cannot compute and BadCheckpoint for what is damaged.
    """
    return load_model(directory / "config.json", list(_shards(directory)), dtype, device, vocab)


def load_model(
    config: Path,
    weights: list[Path],
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    vocab: int | None = None,
) -> Decoder:
    """A model from its configuration and weight files; as `load_checkpoint`."""
    check_device(device)
    shape = read_config(config)
    tensors: dict[str, Tensor] = {}
    for path in weights:
        tensors |= _read(path)
    if vocab is not None:
        tensors |= {name: tensors[name][:vocab] for name in _BY_TOKEN if name in tensors}
        shape = replace(shape, vocab=vocab)
    with torch.device("meta"):
        model = Decoder(shape)
    model.load_state_dict(_fit(model, tensors, dtype), strict=False, assign=True)
    if model.config.tied:
        model.lm_head.weight = model.embed_tokens.weight
    return model.settle().to(device).ready()


HEAD_KIND = "SpecscopeEagleHead"
"""What a draft head's configuration names as its architecture."""


def load_head(
    config: Path, weights: Path, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[EagleHead, str]:
    """A draft head, and the SHA-256 of the weights of the target that it was trained for.

    Raises UnsupportedModel and BadCheckpoint as `load_checkpoint` does.
    """
    check_device(device)
    shape = read_config(config)
    raw = json.loads(config.read_text())
    if raw.get("architectures") != [HEAD_KIND] or "target_sha256" not in raw:
        raise BadCheckpoint(f"{config} describes no draft head")
    with torch.device("meta"):
        head = EagleHead(shape)
    head.load_state_dict(_fit(head, _read(weights), dtype), strict=False, assign=True)
    return head.settle().to(device).ready(), str(raw["target_sha256"])


def save_head(head: EagleHead, config: Path, weights: Path, target_sha256: str) -> None:
    """Write a draft head in float16, as `load_head` reads it."""
    save_weights(head, weights, torch.float16)
    write_config(head.config, config, architectures=[HEAD_KIND], target_sha256=target_sha256)


_BY_TOKEN = ("embed_tokens.weight", "lm_head.weight")


def save_weights(model: Decoder | EagleHead, path: Path, dtype: torch.dtype) -> None:
    """Write `model` under Hugging Face's names, tied weights once."""
    tensors = {
        _outer(name): tensor.detach().to("cpu", dtype).contiguous()
        for name, tensor in model.state_dict().items()
        if not (model.config.tied and name == "lm_head.weight")
    }
    save_file(tensors, path, {"format": "pt"})


def _shards(directory: Path) -> Iterator[Path]:
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        yield directory / "model.safetensors"
        return
    try:
        names: dict[str, Any] = json.loads(index.read_text())["weight_map"]
    except (ValueError, KeyError) as error:
        raise BadCheckpoint(f"{index} is not an index of shards") from error
    for name in sorted(set(names.values())):
        yield directory / name


def _read(path: Path) -> dict[str, Tensor]:
    if not path.exists():
        raise BadCheckpoint(f"no weights at {path}")
    try:
        return {_inner(name): tensor for name, tensor in load_file(path).items()}
    except SafetensorError as error:
        raise BadCheckpoint(f"{path} is damaged: {error}") from error


def _fit(
    model: Decoder | EagleHead, tensors: dict[str, Tensor], dtype: torch.dtype
) -> dict[str, Tensor]:
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if model.config.tied:
        wanted.pop("lm_head.weight", None)
        tensors.pop("lm_head.weight", None)
    # Older checkpoints carry the rotary frequencies, which follow from the configuration.
    found = {n: t for n, t in tensors.items() if not n.endswith("rotary_emb.inv_freq")}
    if found.keys() != wanted.keys():
        missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
        raise BadCheckpoint(f"weights do not fit: missing {missing[:3]}, unexpected {extra[:3]}")
    for name, shape in wanted.items():
        if found[name].shape != shape:
            raise BadCheckpoint(f"{name} is {tuple(found[name].shape)}, expected {tuple(shape)}")
    return {name: tensor.to(dtype) for name, tensor in found.items()}


def _inner(name: str) -> str:
    return name.removeprefix("model.")


def _outer(name: str) -> str:
    return name if name == "lm_head.weight" else f"model.{name}"
