"""Fused kernels for a GPU, in Triton, which CUDA builds of torch bring along.

Each does in one launch what layers.py does in several torch operations; a layer of a small model is
otherwise bound by launches and not by its weights. Imported only if Triton is there and the
tensors are on a GPU. Has not run on a GPU: the tests run it in Triton's interpreter against the
torch path.
"""

# Triton has no types that mypy could check.
# mypy: ignore-errors

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _silu_mul(pair, out, width, BLOCK: tl.constexpr):
    row, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < width
    gate = tl.load(pair + row * 2 * width + place, mask=inside).to(tl.float32)
    up = tl.load(pair + row * 2 * width + width + place, mask=inside).to(tl.float32)
    # Rounded after the activation, as torch does.
    active = (gate / (1.0 + tl.exp(-gate))).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * width + place, active * up, mask=inside)


def silu_mul(pair: Tensor) -> Tensor:
    """silu(gate) * up of pair [N, 2 * width], the gate first."""
    rows, width = pair.shape[0], pair.shape[1] // 2
    out = torch.empty((rows, width), dtype=pair.dtype, device=pair.device)
    _silu_mul[(rows, triton.cdiv(width, BLOCK))](pair, out, width, BLOCK=BLOCK)
    return out


@triton.jit
def _rotate_and_write(
    joint, cos, sin, places, q, cache, stride,
    HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = tl.arange(0, BLOCK)
    inside = place < D
    source = joint + token * (HEADS + 2 * KV) * D + head * D
    x = tl.load(source + place, mask=inside)
    if head < HEADS + KV:
        other = tl.load(source + (place + D // 2) % D, mask=inside).to(tl.float32)
        angle = token * stride + place
        c = tl.load(cos + angle, mask=inside).to(tl.float32)
        s = tl.load(sin + angle, mask=inside).to(tl.float32)
        turned = (x.to(tl.float32) * c).to(q.dtype.element_ty).to(tl.float32) + other * s
        if head < HEADS:
            tl.store(q + token * HEADS * D + head * D + place, turned, mask=inside)
        else:
            at = tl.load(places + token * 2 * KV + head - HEADS)
            tl.store(cache + at * D + place, turned, mask=inside)
    else:
        at = tl.load(places + token * 2 * KV + head - HEADS)
        tl.store(cache + at * D + place, x, mask=inside)


def rotate_and_write(
    joint: Tensor, cos: Tensor, sin: Tensor, places: Tensor, cache: Tensor
) -> Tensor:
    """Rotated queries [N, heads, D] of joint [N, heads + 2 * kv, D]; keys and values are written.

    cos, sin: [N, 1, D]. places: [N, 2 * kv], contiguous, where cache [-1, D] takes a token's keys
    and then its values.
    """
    tokens, heads, width = joint.shape
    kv = places.shape[1] // 2
    queries = heads - 2 * kv
    q = torch.empty((tokens, queries, width), dtype=joint.dtype, device=joint.device)
    _rotate_and_write[(tokens, heads)](
        joint, cos, sin, places, q, cache, cos.stride(0),
        HEADS=queries, KV=kv, D=width, BLOCK=triton.next_power_of_2(width),
    )  # fmt: skip
    return q
