"""The decoder: embeddings, attention over the KV cache, gated feed-forward, logits.

Each row has its own length and rows are not aligned. A token's key and value are written at the
token's own position, and a query sees all positions up to its own. Rolling back a rejected draft
therefore needs no work: stale entries are overwritten before a query can see them."""

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.kv_cache import KVCache
from specscope.engine.model.layers import Attention, Projection, RMSNorm, rotation_table
from specscope.engine.model.layout import Layout


class FeedForward(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.ff, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.ff, bias=False)
        self.down_proj = nn.Linear(config.ff, config.hidden, bias=False)
        self.joint: Projection | None = None
        self.down: Projection | None = None

    def fuse(self) -> None:
        """Join gate and up."""
        self.joint = Projection((self.gate_proj, self.up_proj))
        self.down = Projection((self.down_proj,))

    def inner(self, x: Tensor) -> Tensor:
        """silu(gate(x)) * up(x), which `down` brings back to the width of x."""
        if self.joint is None:
            gate, up = self.gate_proj(x), self.up_proj(x)
        else:
            gate, up = self.joint(x).chunk(2, -1)
        out: Tensor = F.silu(gate) * up
        return out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.inner(x))
        return out


class Layer(nn.Module):
    """One block; names of its parts are those of the checkpoints."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(
        self, x: Tensor, angles: Tensor, cache: tuple[Tensor, Tensor, Tensor], plan: Layout
    ) -> Tensor:
        """x [N, hidden] changed in place, for inference; see Attention.forward."""
        attention, mlp = self.self_attn, self.mlp
        assert attention.out is not None
        assert mlp.down is not None, "Decoder.ready comes first"
        attention.out.add(x, attention(self.input_layernorm(x), angles, cache, plan))
        mlp.down.add(x, mlp.inner(self.post_attention_layernorm(x)))
        return x


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
        self.head: Projection | None = None
        if config.tied:
            self.lm_head.weight = self.embed_tokens.weight
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
        """Freeze for inference: no gradients, joined projections. Returns itself."""
        self.requires_grad_(False).eval()
        for part in self.modules():
            if isinstance(part, RMSNorm):
                part.settle()
        for layer in self.blocks:
            layer.self_attn.fuse()
            layer.mlp.fuse()
        if not self.config.tied:
            self.head = Projection((self.lm_head,))
        elif not self.embed_tokens.weight.is_cuda:
            # The table of embeddings is read by rows, its other use wants columns: keep both.
            head = nn.Linear(self.config.hidden, self.config.vocab, bias=False, device="meta")
            head.weight = self.lm_head.weight
            self.head = Projection((head,))
        return self

    def angles(self, positions: Tensor) -> Tensor:
        """[N, 2, 1, head_dim] in the weights' type, see rotation_table."""
        return self.rotation.index_select(0, positions).to(self.dtype)

    def forward(self, tokens: Tensor, cache: KVCache, plan: Layout) -> Tensor:
        """Hidden states [N, hidden], normalised, of the packed tokens [N] of `plan`.

        Keys and values are written into `cache`, which the queries then read. Logits are a
        second call, since prefill needs none.
        """
        x: Tensor = self.embed_tokens(tokens)
        angles = self.angles(plan.positions)
        places = cache.places(plan)
        for layer, keys, values in zip(self.blocks, cache.keys, cache.values, strict=True):
            x = layer(x, angles, (keys, values, places), plan)
        out: Tensor = self.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, vocab], in the weights' type or float32, whichever is wider."""
        out: Tensor = (self.head or self.lm_head)(hidden)
        return out if out.dtype == torch.float64 else out.float()

    def score(self, tokens: Tensor) -> Tensor:
        """Logits [rows, T, vocab] of whole texts [rows, T] without a cache, differentiable."""
        rows, width = tokens.shape
        x = self.embed_tokens(tokens.reshape(-1))
        angles = self.angles(torch.arange(width, device=tokens.device).repeat(rows))
        for layer in self.blocks:
            x = x + layer.self_attn.attend_causally(layer.input_layernorm(x), angles, rows)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        out: Tensor = self.lm_head(self.norm(x))
        return out.view(rows, width, -1)
