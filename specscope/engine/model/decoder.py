"""The decoder and the draft head: layers of attention over the KV cache and feed-forward.

Each row has its own length and rows are not aligned. A token's key and value are written at the
token's own position, and a query sees all positions up to its own. Rolling back a rejected draft
therefore needs no work: stale entries are overwritten before a query can see them.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Self, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.kv_cache import KVCache, LayerCache
from specscope.engine.model.layers import (
    Attention,
    FusedAttention,
    FusedNorm,
    Pass,
    Projection,
    RMSNorm,
    gpu_kernels,
    rotation_table,
)
from specscope.engine.model.layout import Layout


class FeedForward(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.ff, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.ff, bias=False)
        self.down_proj = nn.Linear(config.ff, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One block; its parts have the checkpoints' names."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, angles: Tensor, rows: int) -> Tensor:
        """x [rows * T, hidden] of whole texts, without a cache; see Attention.forward."""
        x = x + self.self_attn(self.input_layernorm(x), angles, rows)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out

    def fuse(self) -> "FusedLayer":
        """The layer for inference."""
        mlp, attention = self.mlp, self.self_attn
        return FusedLayer(
            self.input_layernorm.fuse(),
            attention.fuse(),
            Projection((attention.o_proj,)),
            self.post_attention_layernorm.fuse(),
            Projection((mlp.gate_proj, mlp.up_proj)),
            Projection((mlp.down_proj,)),
            gpu_kernels(mlp.down_proj.weight),
        )


@dataclass(slots=True)
class FusedLayer:
    """A layer for inference."""

    norm: FusedNorm
    attention: FusedAttention
    out: Projection
    ff_norm: FusedNorm
    gate_up: Projection
    down: Projection
    kernels: ModuleType | None = None

    def __call__(self, x: Tensor, cache: LayerCache, shared: Pass) -> None:
        """Change x [N, hidden] in place; see FusedAttention."""
        self.out.add(x, self.attention(self.norm(x), cache, shared))
        pair = self.gate_up(self.ff_norm(x))
        if self.kernels is not None:
            self.down.add(x, self.kernels.silu_mul(pair))
            return
        gate, up = pair.chunk(2, -1)
        self.down.add(x, F.silu(gate).mul_(up))


class LayerStack(nn.Module):
    """Layers over the KV cache with their final norm: what a decoder and a draft head share."""

    rotation: Tensor

    def __init__(self, config: ModelConfig, **inputs: nn.Module) -> None:
        """inputs: the modules that feed the first layer, by name."""
        super().__init__()
        self.config = config
        for name, module in inputs.items():
            self.add_module(name, module)
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
        return self.norm.weight.dtype

    def settle(self) -> Self:
        """Compute what follows from the configuration alone: angles. Returns itself."""
        device = "meta" if self.norm.weight.is_meta else "cpu"
        with torch.device(device):
            rotation = rotation_table(self.config, self.config.max_context)
        self.register_buffer("rotation", rotation, persistent=False)
        return self

    def ready(self) -> Self:
        """Freeze for inference: no gradients, fused layers. Returns itself."""
        self.requires_grad_(False).eval()
        self.fused = [layer.fuse() for layer in self.blocks]
        self.final_norm = self.norm.fuse()
        self.angles = self.rotation.to(self.dtype)
        return self

    def run_layers(self, x: Tensor, cache: KVCache, plan: Layout) -> Tensor:
        """Hidden states [N, hidden], normalised, of the first layer's input x, which is changed.

        Keys and values are written into `cache`, which the queries then read. Only after `ready`.
        """
        if plan.start is None:
            angles = self.angles.index_select(0, plan.positions)
        else:
            angles = self.angles[plan.start : plan.extent]
        cos, sin = angles.unbind(1)
        shared = Pass(plan, cos, sin, cache.places(plan))
        for layer, part in zip(self.fused, cache.parts(plan), strict=True):
            layer(x, part, shared)
        return self.final_norm(x)


class Decoder(LayerStack):
    """A causal language model of the Llama, Qwen2 or Qwen3 family."""

    embed_tokens: nn.Embedding

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, embed_tokens=nn.Embedding(config.vocab, config.hidden))
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)
        if config.tied:
            self.lm_head.weight = self.embed_tokens.weight

    def ready(self) -> Self:
        """See LayerStack."""
        super().ready()
        self.embedding = self.embed_tokens.weight.detach()
        if not self.config.tied:
            self.head = Projection((self.lm_head,))
        else:
            # Embeddings are read by rows, the head wants columns: a CPU keeps both.
            head = nn.Linear(self.config.hidden, self.config.vocab, bias=False, device="meta")
            head.weight = self.lm_head.weight
            self.head = Projection((head,))
        return self

    def forward(self, tokens: Tensor, cache: KVCache, plan: Layout) -> Tensor:
        """Hidden states [N, hidden], normalised, of the packed tokens [N] of `plan`.

        Logits are a second call, since prefill needs none. See run_layers.
        """
        return self.run_layers(self.embedding.index_select(0, tokens), cache, plan)

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, vocab], in the weights' type or float32, whichever is wider."""
        out = self.head(hidden)
        return out if out.dtype == torch.float64 else out.float()

    def score(self, tokens: Tensor) -> Tensor:
        """Logits [rows, T, vocab] of whole texts [rows, T] without a cache, differentiable."""
        out: Tensor = self.lm_head(self.hidden_states(tokens))
        return out

    def hidden_states(self, tokens: Tensor) -> Tensor:
        """Hidden states [rows, T, hidden], normalised, of whole texts [rows, T]; as `score`."""
        rows, width = tokens.shape
        x = self.embed_tokens(tokens.reshape(-1))
        angles = self.rotation[:width].to(x.dtype).repeat(rows, 1, 1, 1)
        for layer in self.blocks:
            x = layer(x, angles, rows)
        out: Tensor = self.norm(x)
        return out.view(rows, width, -1)


class EagleHead(LayerStack):
    """The EAGLE-style draft head: layers over the target's hidden states.

    At position j the head reads token j and the target's hidden state at j - 1, and predicts token
    j + 1. Behind the text, where the target has no hidden state yet, the head's output at j - 1
    stands in for it. Embedding and output projection are the target's.

    Source: Li et al. 2024 (arXiv 2401.15077) and, for training on its own outputs, Li et al. 2025
    (arXiv 2503.01840).
    """

    embed_norm: RMSNorm
    fc: nn.Linear

    def __init__(self, config: ModelConfig) -> None:
        """config: its vocabulary and hidden size are the target's, its layers the head's own."""
        super().__init__(
            config,
            embed_norm=RMSNorm(config.hidden, config.norm_eps),
            fc=nn.Linear(2 * config.hidden, config.hidden, bias=False),
        )

    def ready(self) -> Self:
        """See LayerStack."""
        super().ready()
        self.first_norm, self.joined = self.embed_norm.fuse(), Projection((self.fc,))
        return self

    def join(self, embedded: Tensor, features: Tensor) -> Tensor:
        """The layers' input of embedded tokens and hidden states, both [..., hidden]."""
        joined: Tensor = self.fc(torch.cat((self.embed_norm(embedded), features), -1))
        return joined

    def forward(self, embedded: Tensor, features: Tensor, cache: KVCache, plan: Layout) -> Tensor:
        """Predicted hidden states [N, hidden], normalised, at the packed tokens of `plan`.

        embedded: [N, hidden] the tokens' rows of the target's embedding
        features: [N, hidden] the hidden state before each token, 0 at the first of a text

        See run_layers.
        """
        x = self.joined(torch.cat((self.first_norm(embedded), features), -1))
        return self.run_layers(x, cache, plan)
