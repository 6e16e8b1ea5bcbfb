"""What a step must cost at least, from a model card and a device's peaks.

Weights are read once a step and used by every query token; KV caches are read once by their
own sequence. So the linear layers turn compute-bound at the ridge, while attention stays
bound by bandwidth at any batch. Kernels run one after the other: their times add.
Peaks come from data sheets; a healthy engine reaches 0.75..0.87 of the bandwidth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """Dense 16-bit peak of one device. flops: operations/s; bandwidth: bytes/s."""

    flops: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a step moves and computes. parameters: those active for a token; kv_bytes: a token's."""

    parameters: float
    kv_bytes: float
    bytes_per_weight: float = 2.0


@dataclass(frozen=True, slots=True)
class StepTime:
    """Least time of a step. [ms]"""

    weights_ms: float
    compute_ms: float
    kv_ms: float

    @property
    def linear_ms(self) -> float:
        """Linear layers: the slower of reading the weights and multiplying by them. [ms]"""
        return max(self.weights_ms, self.compute_ms)

    @property
    def total_ms(self) -> float:
        """Linear layers, then attention. [ms]"""
        return self.linear_ms + self.kv_ms


# Dense 16-bit peaks as their makers print them; sparsity not counted.
PEAKS = {
    "A100": DevicePeaks(312e12, 2.039e12),
    "H100": DevicePeaks(989e12, 3.35e12),
    "H200": DevicePeaks(989e12, 4.8e12),
    "B200": DevicePeaks(2250e12, 8.0e12),
    "L40S": DevicePeaks(362e12, 0.864e12),
    "RTX 3090": DevicePeaks(71e12, 0.936e12),
}


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_value: float) -> float:
    """KV cache of one token over all layers: keys and values. [bytes]"""
    return 2.0 * layers * kv_heads * head_dim * bytes_per_value


def step_time(
    model: ModelShape, device: DevicePeaks, n_q: float, n_kv: float, devices: int = 1
) -> StepTime:
    """Least time of a step of n_q query tokens over n_kv cached tokens on ideal devices.

    Peaks are multiplied by `devices`; communication is not counted. ValueError for n_q <= 0.
    """
    if n_q <= 0 or n_kv < 0 or devices < 1:
        raise ValueError(f"no such step: n_q {n_q}, n_kv {n_kv}, devices {devices}")
    flops, bandwidth = device.flops * devices, device.bandwidth * devices
    return StepTime(
        weights_ms=1e3 * model.parameters * model.bytes_per_weight / bandwidth,
        compute_ms=1e3 * 2.0 * model.parameters * n_q / flops,
        kv_ms=1e3 * model.kv_bytes * n_kv / bandwidth,
    )


def ridge_tokens(device: DevicePeaks, bytes_per_weight: float = 2.0) -> float:
    """Query tokens of a step at which linear layers turn compute-bound. [tokens]

    Four-bit weights move it to a quarter: the slack that speculation lives on shrinks so too.
    """
    return device.flops / device.bandwidth * bytes_per_weight / 2.0


def free_draft_length(device: DevicePeaks, batch: int, bytes_per_weight: float = 2.0) -> int:
    """Longest k whose verify pass stays below the ridge: floor(ridge / batch) - 1, at least 0."""
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    return max(0, math.floor(ridge_tokens(device, bytes_per_weight) / batch) - 1)


def critical_context(model: ModelShape, device: DevicePeaks) -> float:
    """Context S0 whose KV read takes as long as computing one token: a lower bound. [tokens]

    (2 P / flops) / (kv bytes / bandwidth). Fitted slopes give about three times this, since
    achieved arithmetic trails achieved bandwidth: see `steptime.fitted_critical_context`.
    """
    return (2.0 * model.parameters / device.flops) / (model.kv_bytes / device.bandwidth)


def context_for_verify_ratio(critical: float, k: int, ratio: float) -> float:
    """Context from which a compute-bound verify pass costs at most `ratio` target-only steps.

    S >= S0 * (k + 1 - ratio) / (ratio - 1). [tokens] ValueError for ratio <= 1.
    """
    if ratio <= 1:
        raise ValueError(f"ratio must exceed 1, got {ratio}")
    return max(0.0, critical * (k + 1 - ratio) / (ratio - 1.0))


@dataclass(frozen=True, slots=True)
class LayerTraffic:
    """Bytes and operations of one decoder layer in one step."""

    weight_bytes: float
    kv_bytes: float
    weight_flops: float
    kv_flops: float

    @property
    def weight_intensity(self) -> float:
        """Operations per 16-bit weight byte pair: the batch. [operations/byte]"""
        return self.weight_flops / self.weight_bytes

    @property
    def kv_intensity(self) -> float:
        """Operations per KV byte: the group size, whatever the batch. [operations/byte]"""
        return self.kv_flops / self.kv_bytes


def layer_traffic(width: int, group: int, batch: int, context: int) -> LayerTraffic:
    """One Llama-style 16-bit layer with a 4x MLP and `group` query heads to a KV head.

    Source: MagicDec (arXiv 2408.11049), section 3.
    """
    weights = 10.0 * width**2 + 2.0 * width**2 / group
    return LayerTraffic(
        weight_bytes=2.0 * weights,
        kv_bytes=4.0 * batch * context * width / group,
        weight_flops=2.0 * batch * weights,
        kv_flops=4.0 * batch * context * width,
    )
