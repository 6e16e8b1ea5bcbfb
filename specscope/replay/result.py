"""A replay's result as a file, and back: what `gate recommend --accept-replayed` reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specscope.errors import InputError
from specscope.replay.contrast import Gain
from specscope.replay.judge import Judged, Verdict

SCHEMA = "specscope.replay/1"


@dataclass(frozen=True, slots=True)
class Result:
    """A judged replay, and what it was of. created_at: ns since 1970; epoch: "" where not said.

    how: the settings that it ran with, for a person.
    """

    created_at: int
    epoch: str
    arms: tuple[str, str]
    urls: tuple[str, str]
    trace_sha256: str
    requests: int
    how: Mapping[str, Any]
    judged: Judged


def as_json(result: Result) -> dict[str, Any]:
    """Plain values; unknown as null."""
    plain = asdict(result)
    judged = plain.pop("judged")
    for verdict in judged["verdicts"]:
        verdict["class"] = verdict.pop("class_")
    known: dict[str, Any] = _known({"schema": SCHEMA, **plain, **judged})
    return known


def write(path: Path, result: Result) -> None:
    """Write it as JSON. Raises OSError."""
    path.write_text(json.dumps(as_json(result), indent=1, allow_nan=False) + "\n")


def read(path: Path) -> Result:
    """A result that `write` wrote. Raises InputError with what is wrong with it."""
    try:
        raw = json.loads(path.read_text())
        if not isinstance(raw, dict) or "schema" not in raw:
            raise InputError(f"{path} is not the result of a replay")
        if raw["schema"] != SCHEMA:
            raise InputError(f"{path}: a {raw['schema']!r}, not a {SCHEMA!r}")
        judged = Judged(
            verdicts=tuple(_verdict(verdict) for verdict in raw["verdicts"]),
            flags=tuple(raw["flags"]),
            failed=raw["failed"],
            outputs_compared=raw["outputs_compared"],
            outputs_differing=raw["outputs_differing"],
            batch=float(raw["batch"]),
            largest=int(raw["largest"]),
        )
        return Result(
            created_at=int(raw["created_at"]),
            epoch=str(raw["epoch"]),
            arms=(str(raw["arms"][0]), str(raw["arms"][1])),
            urls=(str(raw["urls"][0]), str(raw["urls"][1])),
            trace_sha256=str(raw["trace_sha256"]),
            requests=int(raw["requests"]),
            how=dict(raw["how"]),
            judged=judged,
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{path} is not the result of a replay: {error}") from error


def _verdict(raw: Mapping[str, Any]) -> Verdict:
    gains = tuple(Gain(**gain) for gain in raw["gains"])
    rest = {name: raw[name] for name in raw if name not in ("class", "gains", "reasons")}
    return Verdict(class_=raw["class"], gains=gains, reasons=tuple(raw["reasons"]), **rest)


def _known(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _known(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_known(part) for part in value]
    return value
