"""The source of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self


class Source(NamedTuple):
    """One start of one serving process."""

    replica: str
    boot: str

    @classmethod
    def of(cls, boot: Mapping[str, Any]) -> Self:
        return cls(str(boot["replica"]), str(boot["boot"]))
