"""What memory can do at best, to hold a round's traffic against."""

import time

import torch

from specscope.engine.device import is_gpu
from specscope.engine.model import Decoder


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


def bytes_of_pass(model: Decoder) -> int:
    """What a forward pass of a few tokens must read of the weights.

    All of them, but of a table of embeddings that the head does not share only some rows.
    """
    weights = {id(weight): weight.nbytes for weight in model.parameters()}
    if not model.config.tied:
        del weights[id(model.embed_tokens.weight)]
    return sum(weights.values())


def _wait(device: str) -> None:
    if is_gpu(device):
        torch.cuda.synchronize()
