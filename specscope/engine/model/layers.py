"""The decoder's layers: RMS norm, rotary encoding, joined projections, attention."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.layout import Layout


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis, summed in float32 at least."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps
        self.floor: Tensor | None = None  # eps as a tensor, where `settle` chose the CPU's way

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


def rotation_table(config: ModelConfig, positions: int) -> Tensor:
    """cos and sin of every position's angles, [positions, 2, 1, head_dim] float32.

    The two halves of head_dim carry the same angles, as Hugging Face's checkpoints expect; the
    first half's sine is negative, which spares `rotate` a copy.
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequency = _scaled(config, 1.0 / config.rope.theta**half)
    angle = torch.arange(positions, dtype=torch.float32)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    both = torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), 1)
    return both[:, :, None]


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """x [N, heads, head_dim] turned by its positions' angles [N, 2, 1, head_dim]."""
    cos, sin = angles.unbind(1)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _scaled(config: ModelConfig, frequency: Tensor) -> Tensor:
    rope = config.rope
    if rope.kind == "linear":
        return frequency / rope.factor
    if rope.kind != "llama3":
        return frequency
    # Llama 3: long waves are stretched by the factor, short ones left, those between blended.
    wave = 2 * math.pi / frequency
    low, high = rope.low_freq_factor, rope.high_freq_factor
    blend = ((rope.original_context / wave - low) / (high - low)).clamp(0, 1)
    return (1 - blend) * frequency / rope.factor + blend * frequency


class Projection:
    """Several linear maps of one input as one product, x [N, in] to [N, sum of outs].

    On a CPU the weights are stored input-major: at up to 16 rows that is half as fast again as
    the usual order. The layers' own weights become views, so nothing is held twice.
    """

    def __init__(self, parts: Sequence[nn.Linear]) -> None:
        weight = parts[0].weight if len(parts) == 1 else torch.cat([part.weight for part in parts])
        self.weight = weight.detach().t()
        if weight.device.type != "cuda":
            self.weight = self.weight.contiguous()
        self.bias = None
        if parts[0].bias is not None:
            self.bias = torch.cat([part.bias for part in parts]).detach()
        start = 0
        for part in parts:
            end = start + part.out_features
            part.weight = nn.Parameter(self.weight[:, start:end].t(), requires_grad=False)
            start = end

    def __call__(self, x: Tensor) -> Tensor:
        """The product, with the bias where there is one."""
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add(self, base: Tensor, x: Tensor) -> None:
        """base [N, sum of outs] += the product, in place: on a GPU one kernel less."""
        base.addmm_(x, self.weight)
        if self.bias is not None:
            base.add_(self.bias)


FEW_QUERIES = 64


def attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k' / sqrt(D) + mask) v: every row's queries over its own cache.

    q: [B, M, D], B = rows * kv heads, M = queries * heads that share a key head
    keys, values: [B, capacity, D], of which the first mask.shape[-1] are read
    mask: [B, M, extent], 0 or -inf

    For few queries on a CPU two batched products take three quarters of the fused kernel's time;
    for many the scores would not fit the cache.
    """
    extent = mask.shape[-1]
    keys, values = keys[:, :extent], values[:, :extent]
    if q.device.type != "cuda" and q.shape[1] <= FEW_QUERIES:
        scores = torch.baddbmm(mask, q, keys.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
        return torch.bmm(scores.softmax(-1), values)
    return F.scaled_dot_product_attention(q[None], keys[None], values[None], mask[None])[0]


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
