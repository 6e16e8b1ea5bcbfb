"""Device helpers: copies that do not block, and the thread's current device."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from specscope.engine.errors import BadSetting


def is_gpu(device: str) -> bool:
    """Whether `device` ("cpu", "cuda", "cuda:1", "meta") is a CUDA device."""
    return device.startswith("cuda")


def on_device(device: str) -> AbstractContextManager[Any]:
    """A context, to be entered as often as one likes, in which the thread works on `device`.

    Events, streams and pinned memory follow the thread's current device and not a tensor's: on
    "cuda:1" an event would else be recorded on the first GPU and pass before the work is done.
    """
    return torch.cuda.device(device) if is_gpu(device) else nullcontext()


def send(values: Any, device: str, dtype: torch.dtype = torch.int64) -> Tensor:
    """`values` (numbers, nested as a tensor is) on `device`; the host does not wait for a GPU."""
    host = torch.tensor(values, dtype=dtype)
    if is_gpu(device):
        host = host.pin_memory()
    return host.to(device, non_blocking=True)


def check_device(device: str) -> None:
    """Raises BadSetting if torch cannot compute on `device` here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise BadSetting(f"device {device!r} cannot be used: {reason}") from error
