"""Live sources by the kind that SPECSCOPE_SOURCES names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specscope_agent.sources.interface import LiveSource
from specscope_agent.sources.llamacpp import LlamaCpp

KINDS: dict[str, Callable[[Path, str], LiveSource]] = {"llama.cpp": LlamaCpp}
"""Each takes a path and the name of the replica."""
