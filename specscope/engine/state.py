"""What the device knows of the rows: their tokens, lengths, limits and sampling settings.

Row r's truth is tok[r, :ln[r]]; what lies behind is leftovers. The last of these tokens is not in
any KV cache yet: it is the next round's first input.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specscope.engine.api import SamplingParams

MAX_EOS = 8


@dataclass(frozen=True, slots=True)
class Needs:
    """What the rows of a batch ask of sampling, known on the host so that the rest is skipped."""

    noise: bool = False
    filters: bool = False
    rejection: bool = False
    greedy: bool = False

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            self.noise or other.noise,
            self.filters or other.filters,
            self.rejection or other.rejection,
            self.greedy or other.greedy,
        )


def needs_of(params: SamplingParams) -> Needs:
    """What one request asks of sampling."""
    if params.greedy:
        return Needs(greedy=True)
    filters = params.top_k > 0 or params.top_p < 1
    return Needs(True, filters, params.mode == "rejection")


class BatchState:
    """Device tensors of `rows` sequences; addresses never change."""

    def __init__(self, rows: int, capacity: int, k_max: int, device: str) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.device, self.rows, self.capacity = device, rows, capacity
        self.tok = zeros(rows, capacity + k_max + 2)
        self.ln = zeros(rows)
        self.limit = zeros(rows)
        self.eos = zeros(rows, MAX_EOS)
        self.alive = zeros(rows, dtype=torch.bool)
        self.seed = zeros(rows)
        self.temperature = zeros(rows, dtype=torch.float32)
        self.top_p = zeros(rows, dtype=torch.float32)
        self.top_k = zeros(rows)
        self.greedy = zeros(rows, dtype=torch.bool)
        self.rejection = zeros(rows, dtype=torch.bool)

    def admit(self, row: int, prompt: list[int], params: SamplingParams) -> None:
        """Fill `row` with a request's prompt and settings."""
        n = len(prompt)
        self.tok[row, :n] = torch.tensor(prompt, device=self.device)
        self.ln[row] = n
        self.limit[row] = min(n + params.max_new_tokens, self.capacity)
        eos = [*params.eos, *[-1] * (MAX_EOS - len(params.eos))]
        self.eos[row] = torch.tensor(eos, device=self.device)
        self.alive[row] = True
        self.seed[row] = params.seed
        # A greedy row is a sampled one with neutral settings and no noise.
        self.temperature[row] = 1.0 if params.greedy else params.temperature
        self.top_p[row] = 1.0 if params.greedy else params.top_p
        self.top_k[row] = 0 if params.greedy else params.top_k
        self.greedy[row] = params.greedy
        self.rejection[row] = not params.greedy and params.mode == "rejection"

    def move(self, source: int, target: int) -> None:
        """Copy row `source` over row `target`."""
        for tensor in (
            self.tok, self.ln, self.limit, self.eos, self.alive, self.seed, self.temperature,
            self.top_p, self.top_k, self.greedy, self.rejection,
        ):  # fmt: skip
            tensor[target] = tensor[source]
