"""Live sources by the kind that SPECSCOPE_SOURCES names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from specscope_agent.sources.forward_passes import ForwardPasses
from specscope_agent.sources.interface import LiveSource
from specscope_agent.sources.llamacpp import LlamaCpp
from specscope_agent.sources.vllm_metrics import VllmMetrics


class Kind(NamedTuple):
    """One kind of source.

    follow: creates a source from an address or file and the name of the replica
    """

    follow: Callable[[str, str], LiveSource]
    file: bool
    """Whether it is followed in a file; else at an address."""
    stores: str
    """What it stores, for a person."""
    page: str
    """In docs/engines, how its server is to be started."""


KINDS = {
    "llama.cpp": Kind(
        lambda where, replica: LlamaCpp(Path(where), replica), True, "requests", "llama.cpp.md"
    ),
    "vllm.metrics": Kind(VllmMetrics, False, "sums of intervals", "vllm-metrics.md"),
    "forward-passes": Kind(ForwardPasses, False, "sums of intervals", "forward-passes.md"),
}
