"""One finished request of a llama.cpp server, from its log block or from a `timings` object."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from specscope.readers.records import Finding, Record, TimeParts, Window

CACHED_SHARE = 0.01
"""A prompt this much shorter than the one computed before it came from cache."""

FEW_BARE_STEPS = 0.95
"""Above this coverage the steps without a draft are so few that they are charged to the drafts."""


@dataclass(slots=True)
class Request:
    """The printed values of one request; any of them may be missing."""

    prompt_tokens: int | None = None
    prompt_ms: float | None = None
    tokens: int | None = None
    eval_ms: float | None = None
    proposed: int | None = None
    accepted: int | None = None
    drafts: int | None = None
    mean: float | None = None
    positions: tuple[float | None, ...] | None = None
    accepted_at: tuple[int, ...] | None = None
    draft_ms: float | None = None
    drafter_ms: tuple[str, float, int] | None = None
    """(drafter, ms per draft, drafts) of the slowest drafter, over the server's life."""
    replayed: int = 0
    start: str | None = None
    notes: list[Finding] = field(default_factory=list)


class Requests:
    """Convert requests into records, and remember the last long prompt to detect a repeated one."""

    def __init__(self, input: str) -> None:
        self._input = input
        self._first: tuple[int, int, float] | None = None
        """Prompt tokens, output tokens and speed of the last request whose prompt was computed."""

    def records(self, request: Request) -> Iterator[Record]:
        """The window, the time and the findings of a request."""
        yield from request.notes
        excluded = None
        for finding in self._repeat(request):
            excluded = "repeated prompt" if finding.code == "REPEATED_PROMPT" else excluded
            yield finding
        window = _window(self._input, request, excluded)
        if request.proposed is not None:
            yield Finding("LLAMACPP_DENOMINATOR", "the rate's denominator depends on the build")
        if "mean_length" in window.estimated:
            steps = (request.tokens or 0) - (request.accepted or 0)
            yield Finding(
                "MEAN_LENGTH_ESTIMATED",
                f"about {steps} steps for {request.tokens} tokens",
                {
                    "steps": steps,
                    "mean_length": round(window.mean_length or 0, 4),
                    "proposed_per_step": round((request.proposed or 0) / steps, 3),
                    "ms_per_step": round(window.round_ms, 2) if window.round_ms else None,
                },
            )
        yield window
        yield from self._time(request, window)

    def _repeat(self, request: Request) -> Iterator[Finding]:
        prompt, tokens = request.prompt_tokens, request.tokens
        speed = 1000 * tokens / request.eval_ms if tokens and request.eval_ms else None
        if prompt is None:
            return
        first = self._first
        cached = prompt <= max(1, CACHED_SHARE * first[0] if first else 1)
        if prompt == 1:
            yield Finding("PROMPT_FROM_CACHE", "1 prompt token evaluated: no prefill speed")
        if cached and first and speed and tokens == first[1]:
            yield Finding(
                "REPEATED_PROMPT",
                f"{speed:.1f} tok/s for a repeated prompt, {first[2]:.2f} for its first run",
                {
                    "tok_s": round(speed, 2),
                    "first_tok_s": round(first[2], 2),
                    "ratio": round(speed / first[2], 2),
                },
            )
        elif speed and tokens and not cached:
            self._first = (prompt, tokens, speed)

    def _time(self, request: Request, window: Window) -> Iterator[Record]:
        # With many steps that drafted nothing, a mean step is no round.
        few_bare = window.coverage is None or window.coverage >= FEW_BARE_STEPS
        round_ms = window.round_ms if few_bare else None
        if request.draft_ms is not None and window.drafts and request.eval_ms:
            per_draft = request.draft_ms / window.drafts
            share = request.draft_ms / request.eval_ms
            yield TimeParts(
                self._input,
                rounds=window.drafts,
                round_ms=round_ms,
                draft_ms=per_draft,
                verify_ms=round_ms - per_draft if round_ms and round_ms > per_draft else None,
                parts_ms={"draft": request.draft_ms, "eval": request.eval_ms},
            )
            yield Finding(
                "DRAFT_SHARE",
                f"drafting takes {per_draft:.2f} ms per draft, {share:.1%} of decoding; the "
                "rest is verification, sampling and steps without a draft",
                {"draft_ms": round(per_draft, 3), "share": round(share, 4)},
            )
        elif request.drafter_ms and round_ms:
            name, ms, drafts = request.drafter_ms
            yield TimeParts(
                self._input,
                rounds=drafts,
                round_ms=round_ms,
                draft_ms=ms,
                verify_ms=round_ms - ms if round_ms > ms else None,
            )
            yield Finding(
                "DRAFT_SHARE",
                f"{name} takes {ms:.1f} ms per draft over the server's life, "
                f"{ms / round_ms:.1%} of "
                f"this request's {round_ms:.1f} ms step (an estimate): verification dominates"
                if ms < round_ms / 2
                else f"{name} takes {ms:.1f} ms per draft of a {round_ms:.1f} ms step (an "
                "estimate)",
                {"draft_ms": round(ms, 2), "share": round(ms / round_ms, 4), "estimate": True},
            )


def drafts_from_mean(accepted: int | None, mean: float | None) -> int | None:
    """The number of drafts, if a mean length with two decimals allows only one."""
    if not accepted or mean is None or mean < 1.01:
        return None
    low = math.ceil(accepted / (mean + 0.00501 - 1))
    high = math.floor(accepted / max(mean - 0.00501 - 1, 1e-9))
    return low if low == high else None


def _window(input: str, request: Request, excluded: str | None) -> Window:
    drafts = request.drafts
    if drafts is None:
        drafts = drafts_from_mean(request.accepted, request.mean)
    if drafts is None and request.proposed == 0:
        drafts = 0
    mean, round_ms = request.mean, None
    estimated: tuple[str, ...] = ()
    steps = (request.tokens or 0) - (request.accepted or 0)
    if request.tokens and request.eval_ms and steps > 0:
        if drafts and drafts + (request.accepted or 0) >= FEW_BARE_STEPS * request.tokens:
            round_ms = request.eval_ms / drafts
        else:
            round_ms = request.eval_ms / steps
        if drafts is None and mean is None and request.proposed:
            mean = request.tokens / steps
            estimated = ("mean_length", "round_ms")
    return Window(
        input,
        "llama.cpp",
        grain="request",
        start=request.start,
        seconds=request.eval_ms / 1000 if request.eval_ms else None,
        k=len(request.positions) if request.positions else None,
        drafts=drafts,
        proposed=request.proposed,
        accepted=request.accepted,
        generated=request.tokens,
        counted_at=request.accepted_at,
        printed_positions=request.positions,
        printed_length=mean,
        throughput_tok_s=1000 * request.tokens / request.eval_ms
        if request.tokens and request.eval_ms
        else None,
        round_ms=round_ms,
        draft_ms=request.draft_ms / drafts if request.draft_ms is not None and drafts else None,
        excluded=excluded,
        estimated=estimated,
        tolerance=0.006,
    )
