"""From host to device without waiting."""

from typing import Any

import torch
from torch import Tensor


def send(values: Any, device: str, dtype: torch.dtype = torch.int64) -> Tensor:
    """`values` (numbers, nested as a tensor is) on `device`; the host does not wait for a GPU."""
    host = torch.tensor(values, dtype=dtype)
    if device.startswith("cuda"):
        host = host.pin_memory()
    return host.to(device, non_blocking=True)
