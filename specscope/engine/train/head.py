"""Trains the draft head of a target: it learns what the target would say, not what texts say.

Half of the windows are text of the corpus, half were continued by the target itself, as requests
are: one in two of these greedily. A step unrolls the head as drafting does: first over the target's
hidden states, then over its own outputs.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from specscope.engine.api import RequestEnd, RequestInfo, RoundReport, SamplingParams, fixed_gate
from specscope.engine.decode.drafters.ngram import NgramDrafter
from specscope.engine.decode.engine import Engine
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder, EagleHead
from specscope.engine.model.layers import Attention, rotate
from specscope.engine.train.training import MIX, Say, Tokens, optimizers, rate_at, time_left

WIDTH, BATCH = 256, 8
UNROLLED = 4
"""Draft steps that are trained."""
FADING = 0.9
"""Weight of a draft step's loss in terms of the step before: later ones are reached less often."""
PROMPTS = (16, 128)
"""Tokens of the corpus that a continued window begins with."""
WRITTEN_AT_ONCE = 64
SAVED_EVERY = 25
AVERAGED = 5
"""Saved states whose mean is the result; it does what a longer fall of the learning rate would."""
RATE_STEPS = 900
"""The learning rate falls as if there were so many steps."""


State = dict[str, Tensor]
"""Weights by name."""


@dataclass(frozen=True, slots=True)
class HeadRecipe:
    """A head's feed-forward size, and for how many steps of 8 x 256 tokens it is trained.

    windows: that the target continues, to be drawn from
    """

    ff: int = 640
    steps: int = 550
    seed: int = 3
    windows: int = 1024


def head_config(target: ModelConfig, ff: int) -> ModelConfig:
    """One layer as wide as the target's."""
    return ModelConfig(
        target.vocab, target.hidden, 1, target.heads, target.kv_heads, target.head_dim, ff,
        target.max_context, norm_eps=target.norm_eps, rope=target.rope,
    )  # fmt: skip


def train_head(
    target: Decoder, tokens: Tokens, recipe: HeadRecipe, partial: Path, say: Say
) -> EagleHead:
    """Train a head for `target`, which must be `ready`; go on from `partial` if it exists.

    Batches and initial weights follow from the seed and the step alone. So with one number of
    threads two trainings give the same bits, and so does one that was interrupted.
    """
    torch.manual_seed(recipe.seed)
    head = EagleHead(head_config(target.config, recipe.ff))
    _initialise(head)
    trained = optimizers(head)
    continued = continued_windows(target, tokens, recipe, windows_of(partial, recipe), say)
    step, states = _resume(partial, head, trained, recipe)
    began, first, smooth = time.perf_counter(), step, math.nan
    while step < recipe.steps:
        rows = _batch(tokens, continued, recipe.seed, step)
        with torch.autocast("cpu", torch.bfloat16):
            losses = unrolled_losses(head, target, rows)
        weights = torch.tensor([FADING**place for place in range(UNROLLED)])
        (losses * weights / weights.sum()).sum().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for optimizer, base in trained:
            optimizer.param_groups[0]["lr"] = base * rate_at(step, RATE_STEPS)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss = losses.mean().item()
        smooth = loss if math.isnan(smooth) else 0.95 * smooth + 0.05 * loss
        step += 1
        if step % SAVED_EVERY == 0 or step == recipe.steps:
            own = {name: value.clone() for name, value in head.state_dict().items()}
            states = [*states, own][-AVERAGED:]
            _save(partial, states, trained, recipe, step)
            left = time_left(began, step - first, recipe.steps - first)
            say(f"head step {step}/{recipe.steps} loss {smooth:.3f}, {left}")
    if states:
        mean = {name: sum(own[name] for own in states) / len(states) for name in states[0]}
        head.load_state_dict(mean)
    return head


def unrolled_losses(head: EagleHead, target: Decoder, rows: Tensor) -> Tensor:
    """[UNROLLED] cross-entropy of the head with the target's law, nats per token.

    rows: [rows, T] token ids
    """
    with torch.no_grad():
        hidden = target.hidden_states(rows)
        law = _logits(target, hidden).softmax(-1)
    features = F.pad(hidden[:, :-1], (0, 0, 1, 0))
    embedded = F.embedding(rows, target.embed_tokens.weight)
    losses = []
    for place, out in enumerate(unroll(head, embedded, features, UNROLLED)):
        logits = _logits(target, out)[:, place:]
        losses.append(-(law[:, place:] * logits.log_softmax(-1)).sum(-1).mean())
    return torch.stack(losses)


def unroll(head: EagleHead, embedded: Tensor, features: Tensor, steps: int) -> Iterator[Tensor]:
    """The head's outputs [rows, T, hidden] of each draft step, for all positions at once.

    embedded, features: [rows, T, hidden], see EagleHead.forward

    At step s a position reads the output of step s - 1 at the position before. It sees true
    positions up to s before its own, and of each later one what the step that drafted it wrote.
    The first s positions of step s mean nothing.
    """
    (layer,) = head.blocks
    rows, width = embedded.shape[:2]
    angles = head.rotation[:width].to(embedded.dtype).repeat(rows, 1, 1, 1)
    keys, values = list[Tensor](), list[Tensor]()
    for _ in range(steps):
        x = head.join(embedded, features).flatten(0, 1)
        q, k, v = _project(layer.self_attn, layer.input_layernorm(x), angles, rows)
        keys.append(k)
        values.append(v)
        mixed = _attend(q, keys, values).transpose(1, 2).reshape(rows * width, -1)
        x = x + layer.self_attn.o_proj(mixed)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        out = head.norm(x).view(rows, width, -1)
        yield out
        features = F.pad(out[:, :-1], (0, 0, 1, 0))


def _project(
    attention: Attention, x: Tensor, angles: Tensor, rows: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [rows, heads, T, head_dim] of x [rows * T, hidden]."""
    cos, sin = angles.unbind(1)
    q, k, v = (
        project(x).view(-1, heads, attention.head_dim)
        for project, heads in (
            (attention.q_proj, attention.heads),
            (attention.k_proj, attention.kv_heads),
            (attention.v_proj, attention.kv_heads),
        )
    )
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    q, k, v = (part.view(rows, -1, *part.shape[1:]).transpose(1, 2) for part in (q, k, v))
    group = attention.heads // attention.kv_heads
    return q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)


def _attend(q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
    """Attention of the newest step; keys and values [rows, heads, T, head_dim] of all steps.

    Of step m > 0 a query at step s sees one position, s - m before its own.
    """
    last, width = len(keys) - 1, q.shape[2]
    if not last:
        return F.scaled_dot_product_attention(q, keys[0], values[0], is_causal=True)
    seen = torch.ones(width, width, dtype=torch.bool).tril(-last)
    scores = (q @ keys[0].transpose(2, 3)).masked_fill(~seen, -math.inf)
    own = [(q * k.roll(last - m, 2)).sum(-1) for m, k in enumerate(keys) if m]
    every = torch.cat((scores, torch.stack(own, -1)), -1) * q.shape[-1] ** -0.5
    share = every.softmax(-1)
    out: Tensor = share[..., :width].to(q.dtype) @ values[0]
    for m in range(1, last + 1):
        out = out + share[..., width + m - 1, None] * values[m].roll(last - m, 2)
    return out


def _logits(target: Decoder, hidden: Tensor) -> Tensor:
    return F.linear(hidden, target.lm_head.weight).float()


def _initialise(head: EagleHead) -> None:
    """Small weights; the input's map begins as a copy of the hidden state."""
    hidden = head.config.hidden
    for name, parameter in head.named_parameters():
        if parameter.dim() == 2:
            out = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(parameter, std=0.02 * (0.7 if out else 1))
    with torch.no_grad():
        head.fc.weight[:, hidden:] += torch.eye(hidden)


def _batch(tokens: Tokens, continued: NDArray[np.uint16], seed: int, step: int) -> Tensor:
    """[BATCH, WIDTH] token ids of `step`, half of them continued by the target."""
    rng = np.random.default_rng((seed, 0, step))
    rows = [_window(rng, tokens, WIDTH) for _ in range(BATCH // 2)]
    rows += list(continued[rng.integers(len(continued), size=BATCH - len(rows))])
    return torch.from_numpy(np.stack(rows).astype(np.int64))


def _window(rng: np.random.Generator, tokens: Tokens, width: int) -> NDArray[np.uint16]:
    stream = tokens[rng.choice(list(MIX), p=list(MIX.values()))]
    start = rng.integers(len(stream) - width)
    return stream[start : start + width]


def windows_of(partial: Path, recipe: HeadRecipe) -> Path:
    """The file of continued windows beside a partial training; other seeds have others."""
    return partial.with_name(f"{partial.name}.windows-{recipe.seed}")


def continued_windows(
    target: Decoder, tokens: Tokens, recipe: HeadRecipe, path: Path, say: Say
) -> NDArray[np.uint16]:
    """[recipe.windows, WIDTH] texts that the target wrote from a prompt on, kept in `path`."""
    windows = np.load(path) if path.exists() else np.zeros((0, WIDTH), np.uint16)
    while len(windows) < recipe.windows:
        numbers = range(len(windows), min(len(windows) + WRITTEN_AT_ONCE, recipe.windows))
        windows = np.concatenate((windows, _write(target, tokens, recipe.seed, numbers)))
        path.parent.mkdir(parents=True, exist_ok=True)
        with _replaced(path).open("wb") as file:
            np.save(file, windows)
        _replaced(path).replace(path)
        say(f"the target wrote {len(windows)} of {recipe.windows} windows")
    return np.asarray(windows[: recipe.windows], np.uint16)


def _write(target: Decoder, tokens: Tokens, seed: int, numbers: range) -> NDArray[np.uint16]:
    """Windows by number: even ones greedily, odd ones at temperature 1."""
    written = _Written()
    engine = Engine(
        target, NgramDrafter(), k_max=0, slots=32, capacity=WIDTH, gate=fixed_gate(0),
        observers=[written],
    )  # fmt: skip
    for number in numbers:
        rng = np.random.default_rng((seed, 1, number))
        prompt = _window(rng, tokens, int(rng.integers(*PROMPTS))).tolist()
        params = SamplingParams(float(number % 2), seed=number, max_new_tokens=WIDTH - len(prompt))
        engine.submit(str(number), prompt, params)
    while engine.step():
        pass
    return np.array([written.texts[number] for number in numbers], np.uint16)


class _Written:
    """Collects the texts of requests by number."""

    def __init__(self) -> None:
        self.texts: dict[int, list[int]] = {}

    def round_begins(self) -> None:
        """Nothing to note."""

    def round_ended(self, report: RoundReport) -> None:
        """Nothing to note."""

    def admitted(self, request: RequestInfo) -> None:
        """Nothing to note."""

    def ended(self, end: RequestEnd) -> None:
        """Keep prompt and output."""
        self.texts[int(end.request.id)] = [*end.request.prompt, *end.token_ids]


def _replaced(path: Path) -> Path:
    """Where to write what shall replace `path` whole."""
    return path.with_name(path.name + ".new")


def _save(
    path: Path,
    states: list[State],
    trained: Sequence[tuple[torch.optim.Optimizer, float]],
    recipe: HeadRecipe,
    step: int,
) -> None:
    """Write a training's last weights and its optimizers, whole or not at all."""
    optimizing = [optimizer.state_dict() for optimizer, _ in trained]
    saved = {
        "recipe": asdict(recipe), "step": step, "states": states, "optimizers": optimizing,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(saved, _replaced(path))
    _replaced(path).replace(path)


def _resume(
    path: Path,
    head: EagleHead,
    trained: Sequence[tuple[torch.optim.Optimizer, float]],
    recipe: HeadRecipe,
) -> tuple[int, list[State]]:
    """Load what `_save` wrote; its step and weights, 0 and none if nothing is of this recipe."""
    if not path.exists():
        return 0, []
    saved = torch.load(path, weights_only=True)
    if saved["recipe"] != asdict(recipe):
        return 0, []
    head.load_state_dict(saved["states"][-1])
    for (optimizer, _), state in zip(trained, saved["optimizers"], strict=True):
        optimizer.load_state_dict(state)
    return int(saved["step"]), list(saved["states"])
