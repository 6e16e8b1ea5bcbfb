"""Builds the files of a pair from text: tokenizer, models, draft head, prompts, hashes."""

import json
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from specscope.engine.model.checkpoint import load_model, save_head, save_weights
from specscope.engine.model.config import write_config
from specscope.engine.pair import END, HASHES, HEAD_FILES, file_sha256
from specscope.engine.train.corpus import Document
from specscope.engine.train.head import HeadRecipe, train_head, windows_of
from specscope.engine.train.training import (
    VOCAB,
    Say,
    bundled_recipes,
    encode,
    held_out_loss,
    train,
)


def train_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn `size` tokens, the end of text included, from `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


PAIR_FILES = (
    "target.safetensors", "target.json", "draft.safetensors", "draft.json", "tokenizer.json",
    "prompts.jsonl",
)  # fmt: skip
PROMPTS_PER_CLASS = 64
PROMPT_TOKENS = 64


def build_pair(documents: list[Document], own: list[Document], out: Path, say: Say) -> None:
    """Train tokenizer, target, draft and head on `documents` and write everything into `out`.

    Prompts are cut from `own` documents and from held-out generated ones.
    """
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer((d.text for d in documents if not d.held_out), VOCAB)
    tokenizer.save(str(out / "tokenizer.json"))
    write_prompts(held_out_prompts(prompt_documents(documents, own), tokenizer), out)
    seen, held_out = encode(documents, tokenizer, False), encode(documents, tokenizer, True)
    for label, stream in seen.items():
        say(f"{label}: {len(stream)} tokens to learn from, {len(held_out[label])} held out")
    end = tokenizer.token_to_id(END)
    for recipe in bundled_recipes():
        model = train(recipe, seen, say)
        save_weights(model, out / f"{recipe.name}.safetensors", torch.float16)
        write_config(recipe.config, out / f"{recipe.name}.json", eos_token_id=end, bos_token_id=end)
        losses = held_out_loss(model, held_out)
        say(f"{recipe.name} held out, nats per token: {losses}")
    build_head(documents, out, out, say)


def build_head(
    documents: list[Document], pair: Path, out: Path, say: Say, recipe: HeadRecipe | None = None
) -> None:
    """Train a draft head for the target in `pair` and write the pair with it into `out`.

    A training that was interrupted goes on if it is started again with the same `out`.
    """
    out.mkdir(parents=True, exist_ok=True)
    if pair.resolve() != out.resolve():
        for name in PAIR_FILES:
            shutil.copyfile(pair / name, out / name)
    weights, partial = out / "target.safetensors", out / "head.partial"
    target = load_model(out / "target.json", [weights])
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    seen = encode(documents, tokenizer, False)
    recipe = recipe or HeadRecipe()
    head = train_head(target, seen, recipe, partial, say)
    config, file = (out / name for name in HEAD_FILES)
    save_head(head, config, file, file_sha256(weights))
    for kept in (partial, windows_of(partial, recipe)):
        kept.unlink(missing_ok=True)
    write_hashes(out)


def prompt_documents(documents: list[Document], own: list[Document]) -> list[Document]:
    """Documents that no model learns from and that may be shipped: our own, and generated ones."""
    generated = [d for d in documents if d.source.startswith("generated:") and d.held_out]
    return [*own, *generated]


def write_prompts(prompts: list[dict[str, str]], out: Path) -> None:
    """Write one JSON object a line."""
    (out / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))


def held_out_prompts(documents: list[Document], tokenizer: Tokenizer) -> list[dict[str, str]]:
    """Up to 64 beginnings of about 64 tokens per class.

    A document gives several, each beginning where a paragraph or line does and none overlapping.
    """
    by_class: dict[str, list[dict[str, str]]] = {}
    for document in documents:
        found = by_class.setdefault(document.label, [])
        found += [
            {"label": document.label, "source": document.source, "text": text}
            for text in _beginnings(document, tokenizer)
        ]
    for label, found in by_class.items():
        random.Random(f"prompts/{label}").shuffle(found)
    return [prompt for found in by_class.values() for prompt in found[:PROMPTS_PER_CLASS]]


def write_hashes(out: Path) -> None:
    """SHA-256 of every file that loading a pair depends on."""
    names = (*PAIR_FILES, *(name for name in HEAD_FILES if (out / name).exists()))
    lines = [f"{file_sha256(out / name)}  {name}\n" for name in names]
    (out / HASHES).write_text("".join(lines))


def _beginnings(document: Document, tokenizer: Tokenizer) -> list[str]:
    mark = "\n" if document.label == "json" else "\n\n"
    pieces = document.text.split(mark)
    texts: list[str] = []
    start = 0
    while start < len(pieces) and len(texts) < 12:
        rest = mark.join(pieces[start : start + 40])
        encoding = tokenizer.encode(rest)
        if len(encoding.ids) < PROMPT_TOKENS:
            break
        text = rest[: encoding.offsets[PROMPT_TOKENS - 1][1]]
        if text.strip():
            texts.append(text)
        start += text.count(mark) + 3
    return texts
