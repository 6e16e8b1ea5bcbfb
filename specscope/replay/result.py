"""Write and read a replay's result, the input of `gate recommend --accept-replayed`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specscope.errors import InputError
from specscope.evaluate.experiment.segments import Segment
from specscope.evaluate.verdict import words
from specscope.evaluate.verdict.verdict import Action, Confidence, Flag, Grade, Reason, Verdict
from specscope.replay import judge
from specscope.replay.contrast import Gain
from specscope.replay.counters import read_counted
from specscope.replay.judge import JudgedReplay, Replayed

SCHEMA = "specscope.replay/1"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A judged replay and its source. created_at: ns since 1970. epoch: "" if not given. how:
    settings of the replay, in words.
    """

    created_at: int
    epoch: str
    arms: tuple[str, str]
    urls: tuple[str, str]
    trace_sha256: str
    requests: int
    how: Mapping[str, Any]
    judged: JudgedReplay


def as_json(result: ReplayResult) -> dict[str, Any]:
    """Plain values; unknown values as null."""
    plain = asdict(result)
    judged = plain.pop("judged")
    judged["verdicts"] = [_verdict_json(one) for one in result.judged.verdicts]
    known: dict[str, Any] = without_nan({"schema": SCHEMA, **plain, **judged})
    return known


def write(path: Path, result: ReplayResult) -> None:
    """Write it as JSON. Raises OSError."""
    path.write_text(json.dumps(as_json(result), indent=1, allow_nan=False) + "\n")


def read(path: Path) -> ReplayResult:
    """Read a result that `write` wrote. Raises InputError with the fault."""
    try:
        text = path.read_text()
    except ValueError as error:
        raise InputError(f"{path} is not the result of a replay: {error}") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> ReplayResult:
    """Parse a result; name: name for the error. Raises InputError with the fault."""
    try:
        raw = json.loads(text)
        if not isinstance(raw, dict) or "schema" not in raw:
            raise InputError(f"{name} is not the result of a replay")
        if raw["schema"] != SCHEMA:
            raise InputError(f"{name}: a {raw['schema']!r}, not a {SCHEMA!r}")
        arms = (str(raw["arms"][0]), str(raw["arms"][1]))
        flags = tuple(Flag(flag) for flag in raw["flags"])
        judged = JudgedReplay(
            verdicts=tuple(_replayed(verdict, arms, flags) for verdict in raw["verdicts"]),
            flags=flags,
            failed=raw["failed"],
            outputs_compared=raw["outputs_compared"],
            outputs_differing=raw["outputs_differing"],
            batch=float(raw["batch"]),
            largest=int(raw["largest"]),
            counted=read_counted(raw.get("counted", {})),
            failures=dict(raw.get("failures", {})),
        )
        return ReplayResult(
            created_at=int(raw["created_at"]),
            epoch=str(raw["epoch"]),
            arms=arms,
            urls=(str(raw["urls"][0]), str(raw["urls"][1])),
            trace_sha256=str(raw["trace_sha256"]),
            requests=int(raw["requests"]),
            how=dict(raw["how"]),
            judged=judged,
        )
    except (
        ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        raise InputError(f"{name} is not the result of a replay: {error}") from error


def _verdict_json(one: Replayed) -> dict[str, Any]:
    verdict = one.verdict
    return {
        "class": verdict.segment.class_,
        "context": verdict.segment.context,
        "output": verdict.segment.output,
        "action": verdict.action,
        "k": verdict.k,
        "grade": verdict.grade,
        "confidence": verdict.confidence,
        "requests": one.requests,
        "gains": [asdict(gain) for gain in one.gains],
        "reasons": [words.reason_json(reason) for reason in verdict.reasons],
    }


def _replayed(raw: Mapping[str, Any], arms: Sequence[str], flags: Sequence[Flag]) -> Replayed:
    gains = tuple(Gain(**gain) for gain in raw["gains"])
    verdict = Verdict(
        segment=Segment(raw["class"], raw["context"], raw["output"]),
        action=Action(raw["action"]),
        k=raw["k"],
        grade=Grade(raw["grade"]),
        confidence=Confidence(raw["confidence"]),
        metric=gains[0].metric if gains else "",
        pairs=raw["requests"],
        reasons=tuple(_reason(reason) for reason in raw["reasons"] if isinstance(reason, dict)),
        speedups=tuple(judge.estimate(gain, raw["requests"], arms) for gain in gains[:1]),
        best=(arms[1],),
        flags=tuple(flags),
    )
    return Replayed(verdict, gains)


def _reason(raw: Mapping[str, Any]) -> Reason:
    return Reason(str(raw["code"]), raw["arm"], dict(raw["numbers"]))


def without_nan(value: Any) -> Any:
    """Replace NaN by None in lists and mappings."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return value
