"""The EAGLE-style draft head: one decoder layer over the target's hidden states.

At position j the head reads token j and the target's hidden state at j - 1, and predicts token
j + 1 through the target's own output projection. Behind the text, where the target has no hidden
state yet, the head's output at j - 1 stands in for it.

Source: Li et al. 2024 (arXiv 2401.15077) and, for training on its own outputs, Li et al. 2025
(arXiv 2503.01840).
"""

from typing import cast

import torch
from torch import Tensor, nn

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import FusedLayer, Layer
from specscope.engine.model.kv_cache import KVCache
from specscope.engine.model.layers import Pass, Projection, RMSNorm, rotation_table
from specscope.engine.model.layout import Layout


class EagleHead(nn.Module):
    """A decoder without embeddings and output projection: it borrows those of its target."""

    rotation: Tensor

    def __init__(self, config: ModelConfig) -> None:
        """config: its vocabulary and hidden size are the target's, its layers the head's own."""
        super().__init__()
        self.config = config
        self.embed_norm = RMSNorm(config.hidden, config.norm_eps)
        self.fc = nn.Linear(2 * config.hidden, config.hidden, bias=False)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)
        self.fused: list[FusedLayer] = []
        self.settle()

    @property
    def blocks(self) -> list[Layer]:
        """The layers, typed."""
        return cast(list[Layer], list(self.layers))

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, and so of the KV cache."""
        return self.fc.weight.dtype

    def settle(self) -> "EagleHead":
        """Compute what follows from the configuration alone: angles. Returns itself."""
        device = "meta" if self.fc.weight.is_meta else "cpu"
        with torch.device(device):
            rotation = rotation_table(self.config, self.config.max_context)
        self.register_buffer("rotation", rotation, persistent=False)
        return self

    def ready(self) -> "EagleHead":
        """Freeze for inference: no gradients, fused layers. Returns itself."""
        self.requires_grad_(False).eval()
        self.fused = [layer.fuse() for layer in self.blocks]
        self.first_norm, self.final_norm = self.embed_norm.fuse(), self.norm.fuse()
        self.joined = Projection((self.fc,))
        self.angles = self.rotation.to(self.dtype)
        return self

    def join(self, embedded: Tensor, features: Tensor) -> Tensor:
        """The layers' input of embedded tokens and hidden states, both [..., hidden]."""
        joined: Tensor = self.fc(torch.cat((self.embed_norm(embedded), features), -1))
        return joined

    def forward(self, embedded: Tensor, features: Tensor, cache: KVCache, plan: Layout) -> Tensor:
        """Predicted hidden states [N, hidden], normalised, at the packed tokens of `plan`.

        embedded: [N, hidden] the tokens' rows of the target's embedding
        features: [N, hidden] the hidden state before each token, 0 at the first of a text

        Keys and values are written into `cache`. Only after `ready`.
        """
        x = self.joined(torch.cat((self.first_norm(embedded), features), -1))
        if plan.start is None:
            angles = self.angles.index_select(0, plan.positions)
        else:
            angles = self.angles[plan.start : plan.extent]
        cos, sin = angles.unbind(1)
        shared = Pass(plan, cos, sin, cache.places(plan))
        for layer, part in zip(self.fused, cache.parts(plan), strict=True):
            layer(x, part, shared)
        return self.final_norm(x)
