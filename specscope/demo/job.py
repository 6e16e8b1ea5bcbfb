"""The parent's job for the engine's process, as a command-line argument."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from specscope.demo.plan import Size


@dataclass(frozen=True, slots=True)
class Job:
    """The parent's job. core: the processor to use, or None for any."""

    policy: int
    seed: int
    size: Size
    core: int | None

    def to_json(self) -> str:
        """For the command line of the engine's process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        size = values["size"]
        return cls(**{**values, "size": Size(**{**size, "arms": tuple(size["arms"])})})
