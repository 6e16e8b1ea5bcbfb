"""Trains the bundled pair: a small target, and a draft that is under-trained on purpose.

With a draft as good as its target, speculation would win everywhere."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder
from specscope.engine.pair import END
from specscope.engine.train.corpus import Document

MIX = {"prose": 0.35, "python": 0.35, "sql": 0.15, "json": 0.15}
VOCAB = 2048
CONTEXT = 1024
BATCH, WIDTH = 8, 256
MUON_RATE, ADAM_RATE = 0.02, 3e-3
WARM_UP, CONSTANT_SHARE = 50, 0.4
THREAD_TRIAL = 24

Say = Callable[[str], None]
Tokens = dict[str, NDArray[np.uint16]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model and for how many steps of 8 x 256 tokens it is trained."""

    name: str
    config: ModelConfig
    steps: int
    seed: int


def bundled_recipes() -> tuple[Recipe, Recipe]:
    """Target (6,426,880 parameters) and draft (446,848)."""
    target = ModelConfig(VOCAB, 256, 8, 4, 2, 64, 704, CONTEXT)
    draft = ModelConfig(VOCAB, 128, 1, 2, 1, 64, 352, CONTEXT)
    return Recipe("target", target, 900, 1), Recipe("draft", draft, 500, 2)


def encode(documents: list[Document], tokenizer: Tokenizer, held_out: bool) -> Tokens:
    """One stream of token ids per class; the end token separates documents."""
    end = tokenizer.get_vocab()[END]
    streams: dict[str, list[int]] = {label: [] for label in MIX}
    chosen = [document for document in documents if document.held_out == held_out]
    encoded = tokenizer.encode_batch([document.text for document in chosen])
    for document, encoding in zip(chosen, encoded, strict=True):
        streams[document.label] += [*encoding.ids, end]
    return {label: np.array(ids, np.uint16) for label, ids in streams.items()}


def train(recipe: Recipe, tokens: Tokens, say: Say) -> Decoder:
    """Train from scratch; `say` is told of progress. Not bitwise reproducible: threads vary."""
    torch.manual_seed(recipe.seed)
    model = Decoder(recipe.config)
    _initialise(model)
    trained = optimizers(model)
    batches = _batches(tokens, recipe.seed)
    threads = _Threads()
    began, smooth = time.perf_counter(), 0.0
    for step in range(recipe.steps):
        with threads:
            rate = rate_at(step, recipe.steps)
            with torch.autocast("cpu", torch.bfloat16):
                loss = _loss(model, next(batches))
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer, base in trained:
                optimizer.param_groups[0]["lr"] = base * rate
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        smooth = loss.item() if step == 0 else 0.95 * smooth + 0.05 * loss.item()
        if step % 25 == 24:
            left = time_left(began, step + 1, recipe.steps)
            say(f"{recipe.name} step {step + 1}/{recipe.steps} loss {smooth:.3f}, {left}")
    return model


def time_left(began: float, done: int, of: int) -> str:
    """In words, if the rest goes on like the steps since `began`, a time of perf_counter."""
    left_s = (time.perf_counter() - began) / done * (of - done)
    return f"about {left_s / 60:.0f} min left"


@torch.no_grad()
def held_out_loss(model: Decoder, tokens: Tokens, windows: int = 24) -> dict[str, float]:
    """Mean nats per held-out token of each class, over at most `windows` windows of 256."""
    losses = {}
    for label, stream in tokens.items():
        count = min(windows, (len(stream) - 1) // WIDTH)
        starts = np.linspace(0, len(stream) - WIDTH - 1, count).astype(int)
        rows = torch.from_numpy(np.stack([stream[s : s + WIDTH + 1] for s in starts]).astype(int))
        losses[label] = float(_loss(model, rows))
    return losses


def _loss(model: Decoder, rows: Tensor) -> Tensor:
    logits = model.score(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


def _initialise(model: Decoder) -> None:
    depth = (2 * model.config.layers) ** -0.5
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            out = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(parameter, std=0.02 * depth if out else 0.02)


def optimizers(model: nn.Module) -> list[tuple[torch.optim.Optimizer, float]]:
    """Muon for the layers' matrices, AdamW for the rest, each with its learning rate."""
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "layers" in n]
    rest = [p for n, p in model.named_parameters() if not (p.dim() == 2 and "layers" in n)]
    muon = torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.0, momentum=0.95)
    return [
        (muon, MUON_RATE),
        (torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0), ADAM_RATE),
    ]


def rate_at(step: int, steps: int) -> float:
    """Warm up, stay, fall to zero in a line."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return min(1.0, (steps - step) / (steps * (1 - CONSTANT_SHARE)))


def _batches(tokens: Tokens, seed: int) -> Iterator[Tensor]:
    rng = np.random.default_rng(seed)
    labels, weights = list(MIX), list(MIX.values())
    while True:
        rows = []
        for label in rng.choice(labels, BATCH, p=weights):
            start = rng.integers(len(tokens[label]) - WIDTH - 1)
            rows.append(tokens[label][start : start + WIDTH + 1].astype(np.int64))
        yield torch.from_numpy(np.stack(rows))


class _Threads:
    """Choose one thread or all by timing both now and then.

    On a busy machine a thread that waits for its turn holds up all others at every barrier.
    """

    def __init__(self) -> None:
        self.most = torch.get_num_threads()
        self.step = 0
        self.seconds = {1: math.inf, self.most: math.inf}

    def __enter__(self) -> None:
        phase = self.step % THREAD_TRIAL
        best = min(self.seconds, key=self.seconds.__getitem__)
        self.threads = 1 if phase in (0, 1) else self.most if phase in (2, 3) else best
        torch.set_num_threads(self.threads)
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        if self.step % THREAD_TRIAL in (1, 3):  # the first step after a change is not typical
            self.seconds[self.threads] = time.perf_counter() - self.began
        self.step += 1
