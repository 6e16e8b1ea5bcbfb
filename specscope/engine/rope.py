"""Rotary position encoding (Su et al. 2021, arXiv 2104.09864): plain, linear, Llama 3."""

import math

import torch
from torch import Tensor

from specscope.engine.config import ModelConfig


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
