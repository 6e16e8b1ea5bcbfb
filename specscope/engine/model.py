"""The decoder: embeddings, attention over per-row KV caches, gated feed-forward, logits.

Rows of a batch have their own lengths and nothing is aligned: a token's key and value are written
at the token's own position, and a query sees every position up to its own. Rolling a sequence
back is therefore to do nothing: what lies beyond its length is overwritten before it is seen.
"""

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from specscope.engine.attention import attend
from specscope.engine.config import ModelConfig
from specscope.engine.layout import Layout
from specscope.engine.projection import Projection
from specscope.engine.rope import rotate, rotation_table


class KVCache:
    """Keys and values of `rows` sequences, each up to `capacity` positions."""

    def __init__(
        self, config: ModelConfig, rows: int, capacity: int, device: str, dtype: torch.dtype
    ) -> None:
        shape = (config.layers, rows, config.kv_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)

    @property
    def capacity(self) -> int:
        """Positions per row."""
        return self.keys.shape[3]

    def move(self, source: int, target: int, positions: int) -> None:
        """Copy the first `positions` of row `source` over row `target`."""
        for cache in (self.keys, self.values):
            cache[:, target, :, :positions] = cache[:, source, :, :positions]

    def places(self, plan: Layout) -> Tensor:
        """[N, kv heads] where each of `plan`'s tokens lies in a layer, seen as [-1, head_dim]."""
        heads, capacity = self.keys.shape[2:4]
        first = torch.arange(heads, device=self.keys.device) * capacity
        return (plan.token_rows * (heads * capacity) + plan.positions)[:, None] + first


class RMSNorm(nn.Module):
    """Root-mean-square normalisation, in float32 at least."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

        self.floor: Tensor | None = None

    def settle(self) -> None:
        """On a CPU, make ready for fewer operations than the library's own norm needs there."""
        weight = self.weight
        if not weight.is_cuda:
            wide = torch.promote_types(weight.dtype, torch.float32)
            self.floor = torch.full((), self.eps, dtype=wide, device=weight.device)

    def forward(self, x: Tensor) -> Tensor:
        if self.floor is None:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=self.floor.dtype)
        scale = torch.addcmul(self.floor, norm, norm, value=1 / x.shape[-1]).rsqrt().to(x.dtype)
        out: Tensor = x * scale * self.weight
        return out


class Attention(nn.Module):
    """Grouped-query attention with optional biases and per-head query/key norms."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = config
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.q_proj = nn.Linear(c.hidden, queries, bias=c.qkv_bias)
        self.k_proj = nn.Linear(c.hidden, keys, bias=c.qkv_bias)
        self.v_proj = nn.Linear(c.hidden, keys, bias=c.qkv_bias)
        self.o_proj = nn.Linear(queries, c.hidden, bias=c.o_bias)
        self.q_norm = RMSNorm(c.head_dim, c.norm_eps) if c.qk_norm else None
        self.k_norm = RMSNorm(c.head_dim, c.norm_eps) if c.qk_norm else None
        self.heads, self.kv_heads, self.head_dim = c.heads, c.kv_heads, c.head_dim
        self.joint: Projection | None = None
        self.out: Projection | None = None

    def fuse(self) -> None:
        """Join the three projections: fewer products in every round."""
        self.joint = Projection((self.q_proj, self.k_proj, self.v_proj))
        self.out = Projection((self.o_proj,))

    def project(self, x: Tensor, angles: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [N, heads, D], keys and values [N, kv_heads, D] of x [N, hidden]."""
        h, g, d = self.heads, self.kv_heads, self.head_dim
        if self.joint is None:
            parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
            joint = torch.cat(parts, -1).view(-1, h + 2 * g, d)
        else:
            joint = self.joint(x).view(-1, h + 2 * g, d)
        turned, v = joint[:, : h + g], joint[:, h + g :]
        if self.q_norm is not None and self.k_norm is not None:
            turned = torch.cat((self.q_norm(turned[:, :h]), self.k_norm(turned[:, h:])), 1)
        turned = rotate(turned, angles)
        return turned[:, :h], turned[:, h:], v

    def forward(
        self, x: Tensor, angles: Tensor, cache: tuple[Tensor, Tensor, Tensor], plan: Layout
    ) -> Tensor:
        """[N, heads * D] of x [N, hidden]; cache: keys, values and where the tokens' own belong."""
        q, k, v = self.project(x, angles)
        keys, values, places = cache
        g, d, t = self.kv_heads, self.head_dim, plan.width
        keys.view(-1, d).index_put_((places,), k)
        values.view(-1, d).index_put_((places,), v)
        # The group is folded into the query axis: one key head serves its queries as a batch.
        q = plan.pad(q).view(plan.rows, t, g, -1, d).permute(0, 2, 3, 1, 4)
        rows = slice(plan.first, plan.first + plan.rows)
        out = attend(
            q.reshape(plan.rows * g, -1, d),
            keys[rows].view(plan.rows * g, -1, d),
            values[rows].view(plan.rows * g, -1, d),
            plan.mask,
        )
        out = out.view(plan.rows, g, -1, t, d).permute(0, 3, 1, 2, 4).reshape(-1, self.heads * d)
        return plan.unpad(out)

    def attend_causally(self, x: Tensor, angles: Tensor, rows: int) -> Tensor:
        """Square attention over whole texts, for training and reference: x [rows * T, hidden]."""
        q, k, v = (part.view(rows, -1, *part.shape[1:]) for part in self.project(x, angles))
        repeat = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeat, 2), v.repeat_interleave(repeat, 2)
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        projected: Tensor = self.o_proj(out.transpose(1, 2).reshape(x.shape[0], -1))
        return projected


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
