"""The decoder's layers: RMS norm, rotary encoding, joined projections, attention.

Each module has two forms. `forward` is plain and differentiable, for training. `fuse` returns the
form for inference: a callable without module overhead, over weights that share memory with the
module's own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from specscope.engine.model.config import ModelConfig
from specscope.engine.model.kv_cache import LayerCache
from specscope.engine.model.layout import Layout

FEW_QUERIES = 64
SPLIT_KEYS = 256
"""Keys of one split at least; a split costs as much as this many keys to combine."""
ALIGNED = 16
"""The memory-efficient kernel refuses masks whose rows or splits start at other multiples."""
SPLIT_BLOCKS = 264
"""Thread blocks that keep a large GPU busy: two on each of an H200's 132 multiprocessors."""


def gpu_kernels(weight: Tensor) -> ModuleType | None:
    """The module of fused kernels, if `weight` is on a GPU and Triton is installed."""
    if not weight.is_cuda or find_spec("triton") is None:
        return None
    return import_module("specscope.engine.model.kernels")


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis, summed in float32 at least.

    Source: Zhang & Sennrich 2019 (arXiv 1910.07467).
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)

    def fuse(self) -> "FusedNorm":
        """The norm for inference."""
        return FusedNorm(self.weight.detach(), self.eps)


class FusedNorm:
    """RMSNorm for inference: the library's kernel on a GPU, fewer operations on a CPU."""

    library = False

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight, self.eps, width = weight, eps, weight.shape[0]
        # x w / sqrt(mean(x^2) + eps) is x (w sqrt(width)) / hypot(|x|, sqrt(width eps)).
        self.scaled = weight * math.sqrt(width)
        self.floor = torch.full_like(weight[:1], math.sqrt(width * eps))
        if weight.is_cuda or weight.dtype.itemsize < 4:
            self.library = True

    def __call__(self, x: Tensor) -> Tensor:
        """The norm of x [..., width]."""
        if self.library:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x / norm.hypot_(self.floor)).mul_(self.scaled)


def rotation_table(config: ModelConfig, positions: int) -> Tensor:
    """cos and sin of every position's angles, [positions, 2, 1, head_dim] float32.

    The two halves of head_dim carry the same angles, as Hugging Face's checkpoints expect; the
    first half's sine is negative, which spares `rotate` a copy.

    Source: Su et al. 2021 (arXiv 2104.09864), with linear and Llama 3 scaling.
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequency = _scaled(config, 1.0 / config.rope.theta**half)
    angle = torch.arange(positions, dtype=torch.float32)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    both = torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), 1)
    return both[:, :, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [N, heads, head_dim] rotated by its positions' angles, cos and sin [N, 1, head_dim]."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def rotate_in_place(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """`rotate` written over `x`."""
    torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin, out=x)


def _scaled(config: ModelConfig, frequency: Tensor) -> Tensor:
    rope = config.rope
    if rope.kind == "linear":
        return frequency / rope.factor
    if rope.kind != "llama3":
        return frequency
    # Llama 3 stretches long waves by the factor, leaves short ones, and blends those between.
    wave = 2 * math.pi / frequency
    low, high = rope.low_freq_factor, rope.high_freq_factor
    blend = ((rope.original_context / wave - low) / (high - low)).clamp(0, 1)
    return (1 - blend) * frequency / rope.factor + blend * frequency


class Projection:
    """Several linear maps of one input as one product, x [N, in] to [N, sum of outs].

    On a CPU the weights are stored input-major, which is half as fast again for up to 16 rows. The
    modules' own weights become views, so nothing is held twice.
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
        """The product, with the bias if there is one."""
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def add(self, base: Tensor, x: Tensor) -> None:
        """base [N, sum of outs] += the product, in place: on a GPU one kernel less."""
        base.addmm_(x, self.weight)
        if self.bias is not None:
            base.add_(self.bias)


def attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k' / sqrt(D) + mask) v: every row's queries over its own cache.

    q: [B, M, D], B = rows * kv heads, M = queries * heads that share a key head
    keys, values: [B, extent, D]
    mask: [B or 1, M, extent], 0 or hidden(dtype)

    The backend is chosen here and not by torch, whose choice may plan anew for every shape. For
    few queries on a CPU two batched products take three quarters of the fused kernel's time.
    """
    if q.device.type == "cuda" or q.shape[1] > FEW_QUERIES:
        return split_attend(q, keys, values, mask, splits_of(q.shape[0], q.shape[1], keys.shape[1]))
    scores = torch.baddbmm(mask, q, keys.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
    return torch.bmm(scores.softmax(-1), values)


def splits_of(batch: int, queries: int, extent: int) -> int:
    """Splits of the keys: a power of two, and each split a multiple of ALIGNED keys.

    One block of a GPU reads all keys of a split, so without splits batch 1 of a model with 8 key
    heads would keep 8 of 132 multiprocessors busy, whatever the context.
    """
    blocks, splits = batch * -(-queries // 64), 1
    while (
        blocks * splits < SPLIT_BLOCKS
        and extent % (2 * splits * ALIGNED) == 0
        and extent // (2 * splits) >= SPLIT_KEYS
    ):
        splits *= 2
    return splits


def split_attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, splits: int) -> Tensor:
    """`attend` by the fused kernel over `splits` parts of the keys at once, then combined.

    Each part returns its output and the log of the sum of its exponentials, by which the outputs
    are weighted (as flash decoding does).
    """
    batch, queries, width = q.shape
    extent = keys.shape[1]
    shape = (batch, splits, extent // splits, width)
    mask = mask.expand(batch, -1, -1).view(batch, queries, splits, extent // splits)
    out, weight = fused_attention(
        q[:, None].expand(-1, splits, -1, -1),
        keys.as_strided(shape, _split_strides(keys, shape)),
        values.as_strided(shape, _split_strides(values, shape)),
        mask.transpose(1, 2),
    )
    if splits == 1:
        return out[:, 0]
    share = weight.softmax(1)[..., None]
    return (out * share).sum(1).to(q.dtype)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Output [B, S, M, D] and log-sum-exp [B, S, M] of attention in one kernel, backend pinned.

    On a GPU the memory-efficient kernel, which takes any shape and mask without planning; cuDNN's
    builds a plan for every new shape, tens of milliseconds each.
    """
    if q.device.type == "cuda":
        out, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
            q, k, v, mask, True, 0.0, False
        )
        return out, lse[..., : q.shape[2]]
    if q.is_meta:
        return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    both: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, False, attn_mask=mask
    )
    return both


def _split_strides(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (x.stride(0), shape[2] * x.stride(1), x.stride(1), x.stride(2))


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

    def forward(self, x: Tensor, angles: Tensor, rows: int) -> Tensor:
        """Causal attention over whole texts, x [rows * T, hidden], without a cache."""
        h, g, d = self.heads, self.kv_heads, self.head_dim
        cos, sin = angles.unbind(1)
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = q.view(-1, h, d), k.view(-1, g, d), v.view(-1, g, d)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        q, k, v = (part.view(rows, -1, *part.shape[1:]).transpose(1, 2) for part in (q, k, v))
        k, v = k.repeat_interleave(h // g, 1), v.repeat_interleave(h // g, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        projected: Tensor = self.o_proj(out.transpose(1, 2).reshape(x.shape[0], -1))
        return projected

    def fuse(self) -> "FusedAttention":
        """The attention for inference, its three input projections joined."""
        norms = None
        if self.q_norm is not None and self.k_norm is not None:
            norms = self.q_norm.fuse(), self.k_norm.fuse()
        qkv = Projection((self.q_proj, self.k_proj, self.v_proj))
        kernels = None if norms else gpu_kernels(self.o_proj.weight)
        return FusedAttention(self.heads, self.kv_heads, self.head_dim, qkv, norms, kernels)


@dataclass(slots=True)
class Pass:
    """What all layers of one forward pass share."""

    plan: Layout
    cos: Tensor  # [N, 1, head_dim]
    sin: Tensor
    places: Tensor  # [N, 2 * kv heads], see KVCache.places


@dataclass(slots=True)
class FusedAttention:
    """Attention over the KV cache, up to the output projection."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv: Projection
    norms: tuple[FusedNorm, FusedNorm] | None
    kernels: ModuleType | None = None

    def __call__(self, x: Tensor, cache: LayerCache, shared: Pass) -> Tensor:
        """[N, heads * D] of x [N, hidden]; its keys and values are written before any is read."""
        plan = shared.plan
        joint = self.qkv(x).view(-1, self.heads + 2 * self.kv_heads, self.head_dim)
        if self.kernels is not None:
            q = self.kernels.rotate_and_write(
                joint, shared.cos, shared.sin, shared.places, cache.flat
            )
        else:
            q = self._rotate_and_write(joint, cache.flat, shared)
        parts, g = plan.packing.parts, self.kv_heads
        queries = (q,) if len(parts) == 1 else q.split([part.tokens for part in parts])
        out = [
            part.unfold(attend(part.fold(own, g), keys, values, mask), g)
            for part, own, (keys, values), mask in zip(
                parts, queries, cache.parts, plan.masks, strict=True
            )
        ]
        return out[0] if len(out) == 1 else torch.cat(out)

    def _rotate_and_write(self, joint: Tensor, flat: Tensor, shared: Pass) -> Tensor:
        """Rotated queries [N, heads, D] of joint [N, heads + 2 * kv, D]; writes keys and values."""
        h, g = self.heads, self.kv_heads
        turned = joint[:, : h + g]
        if self.norms is not None:
            for norm, part in zip(self.norms, (turned[:, :h], turned[:, h:]), strict=True):
                part.copy_(norm(part))
        rotate_in_place(turned, shared.cos, shared.sin)
        flat.index_put_((shared.places,), joint[:, h:])
        return joint[:, :h]
