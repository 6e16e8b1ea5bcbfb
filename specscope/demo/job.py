"""What the parent asks of the engine's process, as it crosses the command line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from specscope.demo.plan import Size


@dataclass(frozen=True, slots=True)
class Job:
    """What the parent asks for. core: the processor to stay on, or None for any."""

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
