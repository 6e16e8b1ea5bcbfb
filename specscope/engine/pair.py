"""A target and its draft model: the bundled pair, pairs of checkpoints, and model cards."""

import hashlib
import json
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import torch
from tokenizers import Tokenizer

from specscope.engine.decode.checks import check_head, check_pair
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.drafter import Drafter, NoDrafter
from specscope.engine.decode.drafters.eagle import EagleDrafter
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.errors import BadCheckpoint, BadSetting, IncompatiblePair
from specscope.engine.model.checkpoint import load_checkpoint, load_head, load_model
from specscope.engine.model.config import read_config
from specscope.engine.model.decoder import Decoder, EagleHead

K_MAX = 8
DRAFTERS = ("none", "model", "eagle", "ngram")
"""Names that `Pair.drafter` knows: target only, a draft model, a draft head, n-gram lookup."""
END = "<|end|>"
"""The end-of-text token of the bundled tokenizer."""
HASHES = "SHA256SUMS"
"""The file that lists the SHA-256 of every other file of a pair."""
HEAD_FILES = ("head.json", "head.safetensors")
"""The files of a draft head; a pair may lack them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, and the draft model and draft head that can draft for it."""

    target: Decoder
    draft: Decoder | None
    tokenizer: Tokenizer
    k_max: int
    eos: tuple[int, ...]
    name: str
    head: EagleHead | None = None

    @property
    def drafters(self) -> tuple[str, ...]:
        """The names that `drafter` knows for this pair."""
        models = {"model": self.draft, "eagle": self.head}
        return tuple(name for name in DRAFTERS if models.get(name, self) is not None)

    def drafter(self, name: str) -> Drafter:
        """A drafter by name; raises BadSetting if there is none, or the pair lacks its model."""
        if name not in DRAFTERS:
            raise BadSetting(f"unknown drafter {name!r}; there are {', '.join(DRAFTERS)}")
        if name == "model" and self.draft is not None:
            return ModelDrafter(self.draft)
        if name == "eagle" and self.head is not None:
            return EagleDrafter(self.head, self.target)
        if name in ("model", "eagle"):
            lacking = "draft model" if name == "model" else "draft head"
            usable = ", ".join(self.drafters)
            raise BadSetting(f"{self.name} has no {lacking}; its drafters are {usable}")
        return NgramDrafter() if name == "ngram" else NoDrafter()

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`.

        It encodes a batch of one, because only a batch releases the GIL; so other threads can run.
        """
        ids: list[int] = self.tokenizer.encode_batch_fast([text])[0].ids
        return ids

    def longest_token(self) -> int:
        """Bytes of the longest token: no text of n tokens is longer than n times this."""
        return max(len(token.encode()) for token in self.tokenizer.get_vocab())

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`, special tokens left out."""
        return str(self.tokenizer.decode(ids))


@dataclass(frozen=True, slots=True)
class Prompt:
    """The beginning of a document that the pair never saw, with its class."""

    label: str
    text: str


def load_bundled(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Pair:
    """The bundled pair, its files checked against their SHA-256.

    Raises BadCheckpoint where a file is missing or is not the one that was shipped.
    """
    with as_file(files("specscope.engine") / "bundled") as directory:
        return load_pair(directory, dtype, device)


def load_pair(directory: Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Pair:
    """A pair as `specscope engine train` writes it; raises as `load_bundled` does."""
    hashes = check_hashes(directory)
    target, draft = (
        load_model(directory / f"{name}.json", [directory / f"{name}.safetensors"], dtype, device)
        for name in ("target", "draft")
    )
    check_pair(target.config, draft.config)
    head = None
    if HEAD_FILES[0] in hashes:
        head = _load_head(directory, target, hashes.get("target.safetensors"), dtype, device)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    eos = (tokenizer.get_vocab()[END],)
    return Pair(target, draft, tokenizer, K_MAX, eos, "specscope-bundled", head)


def _load_head(
    directory: Path, target: Decoder, sha256: str | None, dtype: torch.dtype, device: str
) -> EagleHead:
    config, weights = (directory / name for name in HEAD_FILES)
    head, trained_for = load_head(config, weights, dtype, device)
    check_head(target.config, head.config)
    if trained_for != sha256:
        raise IncompatiblePair(f"the head in {directory} was trained for another target")
    return head


def load_checkpoints(
    target: Path, draft: Path | None, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Pair:
    """A pair of Hugging Face checkpoints; `target` holds the tokenizer.json of both.

    Vocabularies that differ only in padding are cut to the smaller one.

    Raises UnsupportedModel, BadCheckpoint, or IncompatiblePair if the vocabularies or, if the
    draft brings one, the tokenizers differ.
    """
    vocab = None
    if draft is not None:
        check_tokenizers(target, draft)
        vocab = shared_vocabulary(target, draft)
    model = load_checkpoint(target, dtype, device, vocab)
    drafting = load_checkpoint(draft, dtype, device, vocab) if draft is not None else None
    if drafting is not None:
        check_pair(model.config, drafting.config)
    path = target / "tokenizer.json"
    if not path.exists():
        raise BadCheckpoint(f"no tokenizer at {path}")
    raw = json.loads((target / "config.json").read_text())
    ends = raw.get("eos_token_id")
    eos = tuple(ends) if isinstance(ends, list) else () if ends is None else (int(ends),)
    return Pair(model, drafting, Tokenizer.from_file(str(path)), K_MAX, eos, target.name)


def shared_vocabulary(target: Path, draft: Path) -> int | None:
    """Tokens to keep of both models, or None if their vocabularies are of one size.

    Checkpoints of one family pad the vocabulary to different sizes (Qwen2.5 7B has 152,064 rows,
    0.5B 151,936, and the tokenizer uses 151,665).
    Raises IncompatiblePair if the tokenizer uses more tokens than the smaller model has.
    """
    sizes = [read_config(directory / "config.json").vocab for directory in (target, draft)]
    path = target / "tokenizer.json"
    if sizes[0] == sizes[1] or not path.exists():
        return None
    used = 1 + max(Tokenizer.from_file(str(path)).get_vocab().values())
    if used > min(sizes):
        raise IncompatiblePair(
            f"target has {sizes[0]} tokens, draft {sizes[1]}, and the tokenizer uses {used}"
        )
    return min(sizes)


def check_tokenizers(target: Path, draft: Path) -> None:
    """Raises IncompatiblePair where both have a tokenizer.json and their vocabularies differ."""
    paths = [directory / "tokenizer.json" for directory in (target, draft)]
    if all(path.exists() for path in paths):
        mine, other = (Tokenizer.from_file(str(path)).get_vocab() for path in paths)
        if mine != other:
            raise IncompatiblePair(f"the tokenizers of {target} and {draft} differ")


def bundled_prompts() -> list[Prompt]:
    """Held-out prompts of about 64 tokens, several dozen a class: prose, python, sql, json."""
    text = (files("specscope.engine") / "bundled" / "prompts.jsonl").read_text()
    entries = [json.loads(line) for line in text.splitlines()]
    return [Prompt(entry["label"], entry["text"]) for entry in entries]


def check_hashes(directory: Path) -> dict[str, str]:
    """Compare every file with the list beside it; the SHA-256 by name. Raises BadCheckpoint."""
    listing = directory / HASHES
    if not listing.exists():
        raise BadCheckpoint(f"no {HASHES} in {directory}")
    hashes = {}
    for line in listing.read_text().splitlines():
        expected, name = line.split("  ")
        path = directory / name
        if not path.exists():
            raise BadCheckpoint(f"{path} is missing")
        if file_sha256(path) != expected:
            raise BadCheckpoint(f"{path} is not the file that was shipped: its SHA-256 differs")
        hashes[name] = expected
    return hashes


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def model_card(pair: Pair, drafter: str = "model") -> dict[str, dict[str, float | int]]:
    """For `target` and, if `drafter` runs a model, `draft`.

    parameters and active_parameters (equal, as nothing is sparse), bytes_per_weight,
    kv_bytes_per_token over all layers, layers, experts (0). A draft head's parameters include the
    output projection that it borrows from the target, since every draft step reads it.
    """
    card = {"target": card_of(pair.target)}
    if drafter == "model" and pair.draft is not None:
        card["draft"] = card_of(pair.draft)
    if drafter == "eagle" and pair.head is not None:
        card["draft"] = card_of(pair.head, pair.target.lm_head.weight.numel())
    return card


def card_of(model: Decoder | EagleHead, borrowed: int = 0) -> dict[str, float | int]:
    """One model's entry; `borrowed`: parameters of another model that its passes read as well."""
    config = model.config
    size = model.dtype.itemsize
    parameters = borrowed + sum(parameter.numel() for parameter in model.parameters())
    return {
        "parameters": parameters,
        "active_parameters": parameters,
        "bytes_per_weight": size,
        "kv_bytes_per_token": 2 * config.layers * config.kv_heads * config.head_dim * size,
        "layers": config.layers,
        "experts": 0,
    }
