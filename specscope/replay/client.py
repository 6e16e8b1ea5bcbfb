"""Send one request to one OpenAI-compatible endpoint, and time its answer."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from specscope.evaluate.statistics.quantiles import bin_of
from specscope.replay.trace import Asked
from specscope.served import Served, said

CLASS_HEADER = "x-specscope-class"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer.

    Times are in ms and start after the connection is established: to the first text, from there to
    the last text, and to the end. gaps: log-histogram of the time between two pieces of text.
    digest: digest of the text. late_s: delay of the sending. error: empty if the answer is
    complete.
    """

    number: int
    part: int
    side: str
    began_s: float
    ended_s: float
    late_s: float = 0.0
    ttft_ms: float = math.nan
    decode_ms: float = math.nan
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    gaps: Mapping[int, int] = field(default_factory=dict)
    digest: str = ""
    error: str = ""


class Endpoint(Served):
    """One side of a replay."""

    def __init__(self, side: str, url: str, client: httpx.AsyncClient, model: str | None) -> None:
        super().__init__(url, client, model)
        self.side = side

    async def metrics(self) -> str | None:
        """Text of the server's `/metrics`; None if it has none."""
        try:
            answer = await self._client.get(f"{self.url}/metrics")
        except httpx.HTTPError:
            return None
        return answer.text if answer.status_code == 200 else None

    async def ask(self, asked: Asked, part: int, began: float, late_s: float = 0.0) -> Outcome:
        """Send a request and read the whole answer. began: start of the part, by time.perf_counter.

        Never raises for faults of the endpoint; an incomplete answer has an error.
        """
        seen = _Streamed(time.perf_counter())
        error = ""
        chat = "messages" in asked.content
        url = f"{self.url}/v1/{'chat/completions' if chat else 'completions'}"
        try:
            async with self._client.stream(
                "POST", url, json=asked.body(self.model), headers={CLASS_HEADER: asked.class_},
                extensions={"trace": seen.event},
            ) as answer:  # fmt: skip
                if answer.status_code != 200:
                    text = (await answer.aread()).decode(errors="replace")
                    error = f"HTTP {answer.status_code}: {' '.join(text.split())[:200]}"
                else:
                    async for line in answer.aiter_lines():
                        seen.line(line, time.perf_counter())
                    error = seen.lacking()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError) as failure:
            error = said(failure)
        return Outcome(
            number=asked.number,
            part=part,
            side=self.side,
            began_s=seen.sent - began,
            ended_s=time.perf_counter() - began,
            late_s=late_s,
            ttft_ms=1e3 * (seen.first - seen.sent),
            decode_ms=1e3 * (seen.last - seen.first),
            output_tokens=seen.output_tokens,
            prompt_tokens=seen.prompt_tokens,
            gaps=seen.gaps,
            digest=seen.digest.hexdigest() if not error else "",
            error=error,
        )


class _Streamed:
    """The events of one answer and their times."""

    def __init__(self, sent: float) -> None:
        self.first = self.last = math.nan
        self.gaps: dict[int, int] = {}
        self.output_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.digest = hashlib.blake2b(digest_size=8)
        self.sent = sent
        self._done = False

    async def event(self, name: str, _details: Any) -> None:
        """Trace hook of the HTTP client, which marks the established connection."""
        if name.endswith("send_request_headers.started"):
            self.sent = time.perf_counter()

    def line(self, line: str, now: float) -> None:
        """Read one line of the stream. Raises ValueError for an invalid event."""
        if not line.startswith("data:"):
            return
        text = line[5:].strip()
        if text == "[DONE]":
            self._done = True
            return
        event = json.loads(text)
        if not isinstance(event, dict) or event.get("error"):
            raise ValueError(f"the stream says {text[:200]}")
        if usage := event.get("usage"):
            self.output_tokens = _count(usage, "completion_tokens")
            self.prompt_tokens = _count(usage, "prompt_tokens")
        piece = "".join(_text(choice) for choice in event.get("choices") or ())
        if piece:
            self._piece(piece, now)

    def _piece(self, piece: str, now: float) -> None:
        self.digest.update(piece.encode())
        if math.isnan(self.first):
            self.first = self.last = now
            return
        gap = bin_of(max(1e3 * (now - self.last), 1e-3))
        self.gaps[gap] = self.gaps.get(gap, 0) + 1
        self.last = now

    def lacking(self) -> str:
        return "" if self._done else "the stream ended before it was done"


def _count(usage: Any, name: str) -> int | None:
    """A count of tokens; None if the server sends none. ValueError for an invalid count."""
    if not isinstance(usage, dict):
        raise ValueError(f"usage says {str(usage)[:200]}")
    count = usage.get(name)
    if count is not None and (type(count) is not int or count < 0):
        raise ValueError(f"usage says {count!r} {name}")
    return count


def _text(choice: Any) -> str:
    delta = choice.get("delta") or {} if isinstance(choice, dict) else None
    if not isinstance(delta, dict):
        raise ValueError(f"a choice says {str(choice)[:200]}")
    parts = (choice.get("text"), delta.get("reasoning_content"), delta.get("content"))
    return "".join(part for part in parts if isinstance(part, str))
