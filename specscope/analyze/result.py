"""The answer as data: the documented, versioned schema of `analyze --json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specscope.analyze.findings import Entry
from specscope.evaluate.verdict.verdict import Action, Confidence, Grade
from specscope.readers.records import DeviceSample, Finding, TimeParts, Window

SCHEMA = "specscope.analysis/1"

WINDOW_FIELDS = (
    "input", "start", "seconds", "engine_index", "k", "drafts", "proposed", "accepted", "emitted",
    "accepted_at", "position_rates", "acceptance_rate", "mean_length", "coverage", "running",
    "waiting", "throughput_tok_s", "round_ms", "engine", "label", "grain", "generated", "draft_ms",
    "excluded", "estimated",
)  # fmt: skip
TIME_FIELDS = (
    "rounds", "draft_ms", "verify_ms", "sample_ms", "idle_ms", "idle_share", "trace_coverage",
    "round_ms", "parts_ms", "input",
)  # fmt: skip


@dataclass(slots=True)
class InputInfo:
    """One file: its format and the recognised part of it."""

    path: str
    format: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    records: int = 0
    unparsed_lines: int = 0
    speculates: bool | None = None
    """Whether the engine was started with speculation; None where the input does not say."""
    method: str | None = None
    k: int | None = None
    has_speed: bool = False
    """Whether an arm of the input has a speed or a time per token."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """One arm against its baseline on one metric; speedup above 1 means that the arm is better."""

    klass: Mapping[str, Any]
    arm: str
    baseline: str
    metric: str
    speedup: float
    ci: tuple[float, float] | None
    comparable: bool
    k: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "class": dict(self.klass),
            "arm": self.arm,
            "baseline": self.baseline,
            "metric": self.metric,
            "speedup": self.speedup,
            "ci": list(self.ci) if self.ci else None,
            "comparable": self.comparable,
            "k": self.k,
        }


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a verdict; `code` names the finding that it repeats, if any."""

    text: str
    code: str | None = None

    @classmethod
    def of(cls, finding: Finding) -> Sentence:
        """The sentence of a finding, with its code."""
        return cls(finding.text, finding.code)


@dataclass(frozen=True, slots=True)
class ClassVerdict:
    """The action for one class, its evidence and its reasons.

    klass: dimensions of the class and their values. k: draft length to run; 0 for no drafts, None
    if the action sets no length.
    """

    klass: Mapping[str, Any]
    action: Action
    confidence: Confidence
    reasons: tuple[Sentence, ...]
    k: int | None = None
    grade: Grade = Grade.NONE

    def as_json(self) -> dict[str, Any]:
        return {
            "class": dict(self.klass),
            "action": self.action.value,
            "k": self.k,
            "grade": None if self.grade is Grade.NONE else self.grade.value,
            "confidence": self.confidence.value,
            "reasons": [reason.text for reason in self.reasons],
        }


@dataclass(frozen=True, slots=True)
class Analysis:
    """The whole analysis, before rendering."""

    inputs: list[InputInfo]
    windows: list[Window]
    totals: Window | None
    comparisons: list[Speedup]
    times: list[TimeParts]
    devices: list[DeviceSample]
    verdicts: list[ClassVerdict]
    findings: list[Entry] = field(default_factory=list)

    @property
    def time(self) -> TimeParts | None:
        """The best time: the one with most known parts, then most rounds."""
        return max(
            self.times,
            key=lambda t: (
                sum(getattr(t, name) is not None for name in TIME_FIELDS[:8]),
                t.rounds or 0,
            ),
            default=None,
        )

    def as_json(self) -> dict[str, Any]:
        """The schema. Every field may be null; rates are 0..1; counts are integers."""
        return {
            "schema": SCHEMA,
            "inputs": [
                {
                    "path": i.path,
                    "format": i.format,
                    "engine": i.engine,
                    "engine_version": i.engine_version,
                    "records": i.records,
                    "unparsed_lines": i.unparsed_lines,
                }
                for i in self.inputs
            ],
            "windows": [window_json(window) for window in self.windows],
            "totals": window_json(self.totals) if self.totals else None,
            "comparisons": [comparison.as_json() for comparison in self.comparisons],
            "time": _time_json(self.time) if self.time else None,
            "devices": [
                {
                    "uuid": d.uuid,
                    "gpu_instance": d.gpu_instance,
                    "field": d.field,
                    "value": d.value,
                    "unit": d.unit,
                    "reason": d.reason,
                    "samples": d.samples,
                    "input": d.input,
                }
                for d in self.devices
            ],
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
            "findings": [entry.as_json() for entry in self.findings],
        }


def window_json(window: Window) -> dict[str, Any]:
    """A window under the schema's names."""
    found: dict[str, Any] = {name: getattr(window, name) for name in WINDOW_FIELDS}
    for name in ("accepted_at", "position_rates", "estimated"):
        found[name] = list(found[name]) if found[name] is not None else None
    found["engine"] = None if window.engine == "unknown" else window.engine
    # Where only some pooled windows know their generated tokens, their sum belongs to those alone.
    partly = window.covered is not None and window.covered != (window.counted[0] or 0) + (
        window.counted[2] or 0
    )
    generated = None if partly else window.generated
    found["generated"] = round(generated) if generated is not None else None
    return found


def _time_json(time: TimeParts) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(time, name) for name in TIME_FIELDS}
    found["parts_ms"] = dict(time.parts_ms)
    return found
