"""Root-mean-square normalisation (Zhang & Sennrich 2019, arXiv 1910.07467)."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


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
