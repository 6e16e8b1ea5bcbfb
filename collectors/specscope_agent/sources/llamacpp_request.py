"""One request of a llama.cpp server: from the lines of its slot to stored rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from specscope_agent.sources import llamacpp_lines as lines
from specscope_hook.columns import End

LONGEST_DRAFT = 255  # of a stored round
_KNOWN = ("total time", "graphs reused", "acc per pos")  # of a block of timings, read past
_ENDS = {"limit": End.LENGTH, "eos": End.EOS, "word": End.STOP}


@dataclass(slots=True)
class Request:
    """The values from the log so far; None if missing."""

    task: str
    admitted_us: int
    temperature: float
    top_p: float
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    output_tokens: int | None = None
    accepted: int = 0
    proposed: int = 0
    rounds: list[tuple[int, int]] = field(default_factory=list)
    """(proposed, accepted) of each round that had a draft."""
    end: str = End.UNKNOWN.name.lower()

    def read(self, function: str, said: str) -> bool:
        """Process a line of the request's slot; False for an unknown line."""
        if function == "print_timing":
            return self._timing(said)
        if (found := lines.ROUND.match(said)) and int(found.group(2)) <= LONGEST_DRAFT:
            self.rounds.append((int(found.group(2)), int(found.group(1))))
        elif found := lines.PROMPT.match(said):
            self.prompt_tokens = int(found.group(1))
        elif found := lines.CACHED.match(said):
            if self.cached_tokens is None:  # later ones count what this request has computed
                self.cached_tokens = int(found.group(1))
        elif found := lines.STOPPED.match(said):
            if reason := _ENDS.get(found.group(1)):
                self.end = reason.name.lower()
        else:
            return False
        return True

    def _timing(self, said: str) -> bool:
        said = said.strip()
        if found := lines.TIMING.search(said):
            ms, tokens = float(found.group(1)), int(found.group(2))
            if said.startswith("prompt eval time"):
                self.prefill_ms = ms
            else:
                self.decode_ms, self.output_tokens = ms, tokens
            return True
        if said.startswith("draft acceptance") and (found := lines.ACCEPTANCE.search(said)):
            self.accepted, self.proposed = int(found.group(1)), int(found.group(2))
            return True
        return said.startswith(_KNOWN)


def rows_of(request: Request, boot: str, ended_us: int, seq: int) -> tuple[dict[str, Any], str]:
    """Rows by table, and the reason for a missing part ("" if it is present).

    seq: the request's record number; its rounds are no records, and have none
    Times are ns since the server's start. The sum of the rounds must be the server's own.
    """
    rounds, lost = request.rounds, ""
    if request.output_tokens is not None:
        totals = sum(k for k, _ in rounds), sum(kept for _, kept in rounds)
        if totals != (request.proposed, request.accepted):
            lost = (
                "the rounds do not add up to the server's own counts"
                if rounds
                else "the server was started without LLAMA_TRACE=1"
            )
    number = int.from_bytes(
        hashlib.blake2b(f"{boot} task {request.task}".encode(), digest_size=8).digest(), "little"
    )
    rows: dict[str, Any] = {}
    if rounds and not lost:
        rows["request_part"] = _part(request, number, ended_us, seq)
    rows["request"] = {
        "request": number,
        "seq": seq,
        "class": "unlabelled",
        "admitted_at": request.admitted_us * 1000,
        "ended_at": ended_us * 1000,
        "prompt_tokens": request.prompt_tokens,
        "cached_tokens": request.cached_tokens,
        "output_tokens": request.output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "guided": False,
        "prefill_ms": request.prefill_ms,
        "decode_ms": request.decode_ms,
        "reason": request.end,
    }
    return rows, lost


def _part(request: Request, number: int, ended_us: int, seq: int) -> dict[str, Any]:
    began_us = ended_us - int(1000 * (request.decode_ms or 0.0))
    emitted = [kept + 1 for _, kept in request.rounds]
    if request.output_tokens is not None:
        # The prompt gives the first token. An end within a draft cuts the last round.
        emitted[-1] = max(1, emitted[-1] - max(0, sum(emitted) + 1 - request.output_tokens))
    return {
        "request": number,
        "first_seq": seq,
        "last_seq": seq,
        "started_at": max(request.admitted_us, began_us) * 1000,
        "class": "unlabelled",
        "context": request.prompt_tokens,
        "rounds": len(request.rounds),
        "k": [k for k, _ in request.rounds],
        "accepted": [kept for _, kept in request.rounds],
        "emitted": emitted,
        "end": request.end,
    }
