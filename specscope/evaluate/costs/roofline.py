"""What a step must cost at least, from a model card and a device's peaks.

Weights are read once a step and used by every query token; KV caches are read once by their
own sequence. So the linear layers turn compute-bound at the ridge, while attention stays
bound by bandwidth at any batch. Kernels run one after the other: their times add.
Peaks come from data sheets; a healthy engine reaches 0.75..0.87 of the bandwidth.
"""

from __future__ import annotations

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


# Dense 16-bit peaks as their makers print them; sparsity not counted.
PEAKS = {
    "A100": DevicePeaks(312e12, 2.039e12),
    "H100": DevicePeaks(989e12, 3.35e12),
    "H200": DevicePeaks(989e12, 4.8e12),
    "B200": DevicePeaks(2250e12, 8.0e12),
    "L40S": DevicePeaks(362e12, 0.864e12),
    "RTX 3090": DevicePeaks(71e12, 0.936e12),
}


def ridge_tokens(device: DevicePeaks, bytes_per_weight: float = 2.0) -> float:
    """Query tokens of a step at which linear layers turn compute-bound. [tokens]

    Four-bit weights move it to a quarter: the slack that speculation lives on shrinks so too.
    """
    return device.flops / device.bandwidth * bytes_per_weight / 2.0


def critical_context(model: ModelShape, device: DevicePeaks) -> float:
    """Context S0 whose KV read takes as long as computing one token: a lower bound. [tokens]

    (2 P / flops) / (kv bytes / bandwidth). Fitted slopes give about three times this, since
    achieved arithmetic trails achieved bandwidth: see `steptime.fitted_critical_context`.
    """
    return (2.0 * model.parameters / device.flops) / (model.kv_bytes / device.bandwidth)
