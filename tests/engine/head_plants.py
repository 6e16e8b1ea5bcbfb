"""Targets and plain computations against which a draft head is exact."""

from dataclasses import replace

import torch
from engine.tiny_models import TINY
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder, EagleHead
from specscope.engine.model.kv_cache import KVCache
from specscope.engine.model.layout import Layout, pack

HEAD = replace(TINY, layers=1)


def random_head(config: ModelConfig = HEAD, seed: int = 4, scale: float = 0.3) -> EagleHead:
    generator = torch.Generator().manual_seed(seed)
    head = EagleHead(config)
    for parameter in head.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=scale, generator=generator)
    return head.double().ready()


def plain_outputs(head: EagleHead, embedded: Tensor, features: Tensor) -> Tensor:
    """The head's outputs [T, hidden] over one text, without cache or layout."""
    x = head.join(embedded, features)
    angles = head.rotation[: len(x)].to(x.dtype)
    for layer in head.blocks:
        x = layer(x, angles, 1)
    return head.norm(x)


class FirstLayers:
    """The first layers of a cache, as a head's cache."""

    def __init__(self, cache: KVCache, layers: int) -> None:
        self.places = cache.places
        self.parts = lambda plan: cache.parts(plan)[:layers]


class HeadAsTarget(Decoder):
    """A target whose hidden state at a place is its head's output over the one before.

    So the head is exact, but only where it reads the right tokens, hidden states, cache and
    positions. The hidden states lie in the cache's last layer and move with it.
    """

    def __init__(self, head: EagleHead, seed: int = 0) -> None:
        super().__init__(replace(head.config, layers=head.config.layers + 1))
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(self.embed_tokens.weight, std=0.3, generator=generator)
        self.double().ready()
        self.inner = head

    def forward(self, tokens: Tensor, cache: KVCache, plan: Layout) -> Tensor:
        keys, values = cache.keys[-1], cache.values[-1]
        inner = FirstLayers(cache, len(cache.keys) - 1)
        outs = []
        for token, row, place in zip(
            tokens.tolist(), plan.packing.token_rows.tolist(), plan.positions.tolist(), strict=True
        ):
            before = torch.cat((keys[row, :, place - 1], values[row, :, place - 1])).view(1, -1)
            own = cache.lay_out_row(pack((1,), "cpu", row), place)
            before = before if place else torch.zeros_like(before)
            out = self.inner(self.embedding[[token]], before, inner, own)
            keys[row, :, place], values[row, :, place] = out.view(2, *keys.shape[1:2], -1)
            outs.append(out)
        return torch.cat(outs)

    def hidden_states(self, tokens: Tensor) -> Tensor:
        outs = []
        for text in tokens:
            embedded = self.embed_tokens(text)
            features = torch.zeros(1, self.config.hidden, dtype=embedded.dtype)
            for place in range(len(text)):
                out = plain_outputs(self.inner, embedded[: place + 1], features)
                features = torch.cat((features, out[-1:]))
            outs.append(features[1:])
        return torch.stack(outs)


def near_head(head: EagleHead, noise: float, seed: int = 9) -> EagleHead:
    """A head that resembles `head`: often accepted whole, and never exact."""
    generator = torch.Generator().manual_seed(seed)
    copy = EagleHead(head.config).double()
    copy.load_state_dict(head.state_dict())
    with torch.no_grad():
        for parameter in copy.parameters():
            step = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter += noise * step
    return copy.ready()


def plain_draft(
    head: EagleHead, target: Decoder, text: list[int], k: int
) -> tuple[list[int], Tensor]:
    """The greedy draft of k tokens and the outputs [k, hidden], from nothing but the text."""
    text, length = list(text), len(text)
    with torch.inference_mode():
        # The last token of a text is in no cache of the target: its state is not known.
        true = target.hidden_states(torch.tensor([text]))[0, : length - 1]
        features = F.pad(true, (0, 0, 1, 0))
        for _ in range(k):
            out = plain_outputs(head, target.embed_tokens(torch.tensor(text)), features)
            features = torch.cat((features, out[-1:]))
            text.append(int(target.lm_head(out[-1]).argmax()))
    return text[length:], features[length:]
