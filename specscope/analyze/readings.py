"""The content of all inputs, before any conclusion."""

from __future__ import annotations

from dataclasses import dataclass, field

from specscope.analyze.findings import Findings
from specscope.analyze.pool import Pool
from specscope.analyze.result import InputInfo
from specscope.analyze.times import Times
from specscope.readers.records import Arm, DeviceSample


@dataclass(slots=True)
class Readings:
    """Inputs and their content; `scraped` holds arms from whole scrapes."""

    inputs: list[InputInfo] = field(default_factory=list)
    pools: dict[str, Pool] = field(default_factory=dict)
    arms: list[Arm] = field(default_factory=list)
    scraped: list[Arm] = field(default_factory=list)
    times: Times = field(default_factory=Times)
    devices: list[DeviceSample] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    def cumulative_v0(self, path: str) -> bool:
        """Whether an input is a vLLM V0 log, whose printed throughput is not the output."""
        return self.findings.has("V0_CUMULATIVE", path)
