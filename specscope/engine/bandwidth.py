"""What memory can do at best, to hold a round's traffic against."""

import time

import torch


def copy_bandwidth(device: str, megabytes: int = 128) -> float:
    """GB/s read and written by a large copy on `device`: the best of five."""
    source = torch.ones(megabytes << 18, device=device)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(5):
        _wait(device)
        began = time.perf_counter()
        target.copy_(source)
        _wait(device)
        best = min(best, time.perf_counter() - began)
    return 2 * source.nbytes / best / 1e9


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
