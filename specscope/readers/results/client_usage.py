"""Draft counts in a response: LM Studio's `stats`, `accepted_prediction_tokens` of a usage.

No engine prints the number of verify passes here. Each pass adds one token besides the accepted
ones, so the remaining tokens estimate that number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from specscope.readers.records import Record, Window
from specscope.readers.results.json_file import count, real

_LMSTUDIO = ("total_draft_tokens_count", "totalDraftTokensCount")
_ACCEPTED = (
    "accepted_draft_tokens_count",
    "acceptedDraftTokensCount",
    "accepted_prediction_tokens",
)
_REJECTED = (
    "rejected_draft_tokens_count",
    "rejectedDraftTokensCount",
    "rejected_prediction_tokens",
)
_TOKENS = ("completion_tokens", "predictedTokensCount", "predicted_tokens_count")
_SPEEDS = ("tokens_per_second", "tokensPerSecond", "completion_tokens_per_sec")
_PLAIN = ("tokens_per_second", "time_to_first_token", "generation_time")
"""What LM Studio says of a run with or without a draft model."""

DEEPEST = 6

_SNIFF = re.compile(
    rb'"(?:total_draft_tokens_count|totalDraftTokensCount)"|_prediction_tokens"\s*:\s*[1-9]'
)


def speaks(head: bytes) -> bool:
    """Whether JSON has such counts, or LM Studio's statistics without them."""
    plain = all(f'"{name}"'.encode() in head for name in _PLAIN)
    return plain or bool(_SNIFF.search(head))


def responses(document: Any, depth: int = DEEPEST) -> Iterator[dict[str, Any]]:
    """The outermost objects with such counts, flattened."""
    if not depth:
        return
    if isinstance(document, list):
        for item in document:
            yield from responses(item, depth - 1)
    elif isinstance(document, dict):
        flat = _flat(document)
        if any(name in flat for name in (*_ACCEPTED, *_PLAIN[:1])):
            yield flat
        else:
            for item in document.values():
                yield from responses(item, depth - 1)


def _flat(found: Mapping[str, Any], depth: int = 2) -> dict[str, Any]:
    """An object with its `usage`, `stats` and details on one level."""
    flat = {name: value for name, value in found.items() if not isinstance(value, dict | list)}
    for name in ("usage", "completion_tokens_details", "stats"):
        if depth and isinstance(inner := found.get(name), dict):
            flat |= _flat(inner, depth - 1)
    return flat


def usage(input: str, found: dict[str, Any]) -> Iterator[Record]:
    """The window of one response; none without drafts and times."""
    accepted, rejected = count(found, *_ACCEPTED), count(found, *_REJECTED)
    tokens, speed = count(found, *_TOKENS), real(found, *_SPEEDS)
    lmstudio = any(name in found for name in (*_LMSTUDIO, *_PLAIN[1:]))
    proposed = accepted + rejected if accepted is not None and rejected is not None else None
    if proposed is None:
        proposed = count(found, *_LMSTUDIO)
    if proposed or (lmstudio and speed):
        yield drafted(
            input,
            "lmstudio" if lmstudio else "unknown",
            tokens,
            speed,
            (accepted, proposed) if accepted is not None else None,
        )


def drafted(
    input: str,
    engine: str,
    tokens: int | None,
    speed: float | None,
    counts: tuple[int, int | None] | None,
) -> Window:
    """A request's window from (accepted, proposed), or a target-only one without such counts."""
    accepted, proposed = counts or (None, None)
    steps = tokens - accepted if tokens and accepted is not None else 0
    mean = tokens / steps if tokens and proposed and steps > 0 else None
    return Window(
        input,
        engine,
        grain="request",
        proposed=proposed or None,
        accepted=accepted if proposed else None,
        generated=tokens,
        printed_length=mean,
        throughput_tok_s=speed,
        round_ms=1000 * mean / speed if mean and speed else None,
        target_only=counts is None,
        estimated=("mean_length", "round_ms") if mean else (),
        tolerance=0.006,
    )
