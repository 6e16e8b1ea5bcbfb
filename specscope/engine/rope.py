"""Rotary position encoding (Su et al. 2021, arXiv 2104.09864): plain, linear, Llama 3."""

import math

import torch
from torch import Tensor

from specscope.engine.config import ModelConfig


def rotation_table(config: ModelConfig, positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin of every position's angles, each [positions, head_dim] float32.

    The two halves of head_dim carry the same angles, as Hugging Face's checkpoints expect.
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequency = _scaled(config, 1.0 / config.rope.theta**half)
    angle = torch.arange(positions, dtype=torch.float32)[:, None] * frequency
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [N, heads, head_dim] turned by its positions' angles; cos and sin are [N, 1, head_dim]."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


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
