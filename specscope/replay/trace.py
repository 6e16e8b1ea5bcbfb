"""A trace: requests with their times, one JSON object per line.

    {"offset_s": 0.25, "class": "sql", "session": "s1", "prompt": "SELECT ...",
     "max_tokens": 64, "sampling": {"temperature": 0}}

`prompt` is a text or a list of token ids; `messages` makes it a chat. If neither was stored,
`prompt_tokens` gives the length, and a prompt of that many arbitrary tokens is sent. Such a prompt
allows a comparison of times, but not of acceptance, which depends on the text.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specscope.errors import InputError

OURS = frozenset({"model", "prompt", "messages", "max_tokens", "stream", "stream_options", "n"})
LOWEST_ID, IDS = 10, 1000  # of synthetic prompts: tokens that every vocabulary has
LONGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. offset_s: seconds after the trace's begin. content: prompt, messages or neither.

    session: requests of one session form one cluster; empty for none.
    """

    number: int
    offset_s: float
    class_: str
    session: str
    content: Mapping[str, Any]
    prompt_tokens: int | None
    max_tokens: int
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def synthetic(self) -> bool:
        """Whether its prompt is a placeholder."""
        return not self.content

    @property
    def cluster(self) -> str:
        """Cluster of the request: its session, or the request itself."""
        return f"session {self.session}" if self.session else f"request {self.number}"

    def body(self, model: str | None) -> dict[str, Any]:
        """Body of the request: streamed, with usage at the end."""
        content = self.content or {"prompt": synthetic_prompt(self.number, self.prompt_tokens or 1)}
        body = {**self.sampling, **content, "max_tokens": self.max_tokens, "stream": True}
        body["stream_options"] = {"include_usage": True}
        if model:
            body["model"] = model
        if self.session:
            body["user"] = self.session
        return body


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests by rising offset. sha256: digest of the file, which identifies the trace in
    results."""

    requests: tuple[Asked, ...]
    sha256: str

    @property
    def span_s(self) -> float:
        """From the first arrival to the last."""
        return self.requests[-1].offset_s - self.requests[0].offset_s

    @property
    def synthetic(self) -> int:
        """Number of requests with a placeholder prompt."""
        return sum(asked.synthetic for asked in self.requests)


def synthetic_prompt(number: int, tokens: int) -> list[int]:
    """Token ids of a placeholder prompt; equal for equal numbers."""
    drawn = random.Random(f"replay/{number}")
    return [drawn.randrange(LOWEST_ID, IDS) for _ in range(tokens)]


def read_trace(path: Path) -> Trace:
    """Read a trace file. Raises InputError with the line and its fault."""
    raw = path.read_bytes()
    requests = list[Asked]()
    for place, line in enumerate(raw.splitlines(), start=1):
        if line.strip():
            try:
                requests.append(_asked(json.loads(line), len(requests)))
            except (ValueError, TypeError) as error:
                raise InputError(f"{path}:{place}: {error}") from error
    if not requests:
        raise InputError(f"{path}: no request in it")
    ordered = sorted(requests, key=lambda asked: asked.offset_s)
    return Trace(tuple(ordered), hashlib.sha256(raw).hexdigest())


def write_trace(path: Path, lines: Iterable[Mapping[str, Any]]) -> int:
    """Write the lines of a trace and return their number. Raises OSError."""
    texts = [json.dumps(line, allow_nan=False) + "\n" for line in lines]
    path.write_text("".join(texts))
    return len(texts)


def _asked(raw: Any, number: int) -> Asked:
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")
    content = {name: raw[name] for name in ("prompt", "messages") if raw.get(name) is not None}
    if len(content) > 1:
        raise ValueError("both prompt and messages")
    tokens = raw.get("prompt_tokens")
    if not content and tokens is None:
        raise ValueError("neither prompt, messages nor prompt_tokens")
    if "prompt" in content and not isinstance(content["prompt"], str | list):
        raise ValueError("prompt is neither a text nor a list of token ids")
    if "messages" in content and not isinstance(content["messages"], list):
        raise ValueError("messages is not a list")
    sampling = raw.get("sampling") or {}
    if not isinstance(sampling, dict) or OURS & set(sampling):
        raise ValueError(f"sampling is no object of settings, or sets {', '.join(sorted(OURS))}")
    return Asked(
        number=number,
        offset_s=_number(raw.get("offset_s"), "offset_s"),
        class_=_text(raw.get("class"), "class") or "other",
        session=_text(raw.get("session"), "session"),
        content=content,
        prompt_tokens=None if tokens is None else _count(tokens, "prompt_tokens"),
        max_tokens=_count(raw.get("max_tokens"), "max_tokens"),
        sampling=sampling,
    )


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} is {value!r}, not a number")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{what} is {value!r}, not a time after the beginning")
    return float(value)


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LONGEST:
        raise ValueError(f"{what} is {value!r}, not a number of tokens")
    return value


def _text(value: Any, what: str) -> str:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{what} is {value!r}, not a text")
    return value or ""


def classes_of(requests: Sequence[Asked]) -> list[str]:
    """Classes in a trace, by name."""
    return sorted({asked.class_ for asked in requests})
