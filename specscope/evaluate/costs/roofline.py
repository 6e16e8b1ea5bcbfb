"""The lower limit of a step's time, from a model card and a device's peaks.

A step reads the weights once for all query tokens, and each KV cache once for its own sequence. So
the linear layers become compute-bound at the ridge, and attention stays bandwidth-bound at any
batch. Kernels run one after the other, so their times add. Peaks come from data sheets; a healthy
engine reaches 0.75..0.87 of the bandwidth.
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
    """Bytes and operations of a step. parameters: active per token; kv_bytes: KV cache per
    token."""

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
    """Query tokens of a step at which linear layers become compute-bound. [tokens]

    Four-bit weights reduce it to a quarter, and with it the slack for speculation.
    """
    return device.flops / device.bandwidth * bytes_per_weight / 2.0


def critical_context(model: ModelShape, device: DevicePeaks) -> float:
    """Lower bound of the context S0 whose KV read takes as long as computing one token. [tokens]

    (2 P / flops) / (kv bytes / bandwidth). Fitted slopes give about three times this value, because
    engines reach less of the peak arithmetic than of the bandwidth. See
    `steptime.StepModel.critical_context`.
    """
    return (2.0 * model.parameters / device.flops) / (model.kv_bytes / device.bandwidth)
