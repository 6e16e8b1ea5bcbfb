"""The decoder: embeddings, attention over the KV cache, gated feed-forward, logits.

Each row has its own length and rows are not aligned. A token's key and value are written at the
token's own position, and a query sees all positions up to its own. Rolling back a rejected draft
therefore needs no work: stale entries are overwritten before a query can see them.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import cast

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


class Decoder(nn.Module):
    """A causal language model of the Llama, Qwen2 or Qwen3 family."""

    rotation: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)
        if config.tied:
            self.lm_head.weight = self.embed_tokens.weight
        self.fused: list[FusedLayer] = []
        self.settle()

    @property
    def blocks(self) -> list["Layer"]:
        """The layers, typed."""
        return cast(list[Layer], list(self.layers))

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, and so of the KV cache."""
        return self.embed_tokens.weight.dtype

    def settle(self) -> "Decoder":
        """Compute what follows from the configuration alone: angles. Returns itself."""
        device = "meta" if self.embed_tokens.weight.is_meta else "cpu"
        with torch.device(device):
            rotation = rotation_table(self.config, self.config.max_context)
        self.register_buffer("rotation", rotation, persistent=False)
        return self

    def ready(self) -> "Decoder":
        """Freeze for inference: no gradients, fused layers. Returns itself."""
        self.requires_grad_(False).eval()
        self.fused = [layer.fuse() for layer in self.blocks]
        self.final_norm = self.norm.fuse()
        self.embedding = self.embed_tokens.weight.detach()
        self.angles = self.rotation.to(self.dtype)
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

        Keys and values are written into `cache`, which the queries then read. Logits are a second
        call, since prefill needs none. Only after `ready`.
        """
        x = self.embedding.index_select(0, tokens)
        if plan.start is None:
            angles = self.angles.index_select(0, plan.positions)
        else:
            angles = self.angles[plan.start : plan.extent]
        cos, sin = angles.unbind(1)
        shared = Pass(plan, cos, sin, cache.places(plan))
        for layer, part in zip(self.fused, cache.parts(plan), strict=True):
            layer(x, part, shared)
        return self.final_norm(x)

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
