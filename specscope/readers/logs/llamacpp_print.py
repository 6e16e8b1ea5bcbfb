"""llama.cpp's older `speculative` example: a block of timings per model, and a summary.

Its names are misleading: the target's `prompt eval` is batched verification, its `eval` the single
steps, and `1 runs` after the draft's sampling time is no count of samples. Source:
examples/speculative and common/perf printing, 2023 to 2025.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from specscope.readers.logs.lines import INTEGER, REAL, plain
from specscope.readers.records import Finding, Origin, Record, TimeParts, Window

_PART = re.compile(
    rf"(load|sample|sampling|prompt eval|eval|total) time =\s*{REAL} ms"
    rf"(?: /\s*{INTEGER} (?:runs|tokens))?"
)
_SUMMARY = re.compile(rf"\b(n_draft|n_predict|n_drafted|n_accept)\s*=\s*{INTEGER}")
_DECODED = re.compile(rf"(?:decoded|generated)\s+{INTEGER} tokens in\s+{REAL} seconds")
ALL_STEPS = 0.95
"""A run drafts at every step, so its drafts and accepted tokens make up nearly all its tokens."""


_WORK = {"prompt eval", "eval"}
"""Without these of both models a block is cut, and its shares would mislead."""


class LlamaCppPrint:
    """Draft and target blocks of one run."""

    name = "llamacpp-print"
    gates = (
        b"llama_print_timings:",
        b"perf_context_print:",
        b"n_drafted",
    )
    marks = (
        b"llama_print_timings:",
        b"llama_perf_context_print:",
        b"draft:",
        b"target:",
        b"n_draft",
        b"n_predict",
        b"n_accept",
        b"decoded ",
        b"generated ",
    )

    def __init__(self, input: str) -> None:
        self._input = input
        self._start()

    def _start(self) -> None:
        self._parts: dict[str, dict[str, tuple[float, int]]] = {}
        self._model = "target"
        self._summary: dict[str, int] = {}
        self._decode_s: float | None = None

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:  # noqa: ARG002
        text = plain(line).strip()
        if text in ("draft:", "target:"):
            self._model = text[:-1]
            return ()
        if "print_timings:" in text or "perf_context_print:" in text:
            match = _PART.search(text)
            if match:
                part = match.group(1).replace("sampling", "sample")
                self._parts.setdefault(self._model, {})[part] = (
                    float(match.group(2)),
                    int(match.group(3) or 0),
                )
            return ()
        decoded = _DECODED.search(text)
        counts = {name: int(n) for name, n in _SUMMARY.findall(text)}
        # A figure that is there already belongs to the next run of the file.
        again = (decoded and self._decode_s is not None) or counts.keys() & self._summary.keys()
        ended = list(self.finish()) if again else []
        if decoded:
            self._decode_s = float(decoded.group(2))
        self._summary.update(counts)
        return ended

    def finish(self) -> Iterator[Record]:
        """The counts and times of the run so far."""
        draft, target = self._parts.get("draft", {}), self._parts.get("target", {})
        found, seconds = self._summary, self._decode_s
        self._start()
        if {"n_drafted", "n_accept", "n_predict"} <= found.keys():
            yield from _counted(self._input, found, seconds)
        elif not draft and "n_drafted" not in found and target.get("eval", (0, 0))[1] > 1:
            ms, runs = target["eval"]
            yield Window(
                self._input,
                "llama.cpp",
                grain="run",
                generated=runs,
                seconds=ms / 1000,
                throughput_tok_s=1000 * runs / ms if ms else None,
            )
        if draft or target:
            yield Origin("llama.cpp")
        if draft.keys() & _WORK and target.keys() & _WORK:
            yield from self._times(draft, target)

    def _times(
        self, draft: dict[str, tuple[float, int]], target: dict[str, tuple[float, int]]
    ) -> Iterator[Record]:
        named = {
            "draft_sample": draft.get("sample"),
            "draft_prompt": draft.get("prompt eval"),
            "draft_eval": draft.get("eval"),
            "target_sample": target.get("sample"),
            "target_verify": target.get("prompt eval"),
            "target_single": target.get("eval"),
        }
        parts = {name: got[0] for name, got in named.items() if got}
        total = max((m.get("total", (0.0, 0))[0] for m in (draft, target)), default=0.0)
        known = sum(parts.values())
        if total:
            parts["unaccounted"] = total - known
        whole = total or known
        if not whole:
            return
        yield TimeParts(self._input, parts_ms=parts)
        shares = {name: round(ms / whole, 4) for name, ms in parts.items()}
        ranked = sorted(shares, key=lambda name: -shares[name])
        evidence: dict[str, object] = {
            "total_ms": round(whole, 2),
            "accounted_ms": round(known, 2),
            "parts_ms": {name: round(ms, 2) for name, ms in parts.items()},
            "shares": shares,
            "ranked": ranked,
        }
        yield Finding(
            "TIME_PARTS",
            "largest parts: " + ", ".join(f"{name} {shares[name]:.1%}" for name in ranked[:3]),
            evidence,
        )
        yield from self._verify(draft, target, shares)

    def _verify(
        self,
        draft: dict[str, tuple[float, int]],
        target: dict[str, tuple[float, int]],
        shares: dict[str, float],
    ) -> Iterator[Record]:
        verify, single = target.get("prompt eval"), target.get("eval")
        if verify and single and verify[1] and single[1]:
            per_token, step = verify[0] / verify[1], single[0] / single[1]
            yield Finding(
                "VERIFY_NOT_ONE_STEP",
                f"{per_token:.2f} ms per verified token against {step:.2f} ms for a lone step: the "
                "cost by number of tokens, T(N), has to be measured",
                {
                    "verify_ms_per_token": round(per_token, 3),
                    "step_ms": round(step, 3),
                    "step_tok_s": round(1000 / step, 2),
                    "verified_tokens": verify[1],
                    "share": shares.get("target_verify"),
                },
            )
        sample, forward = draft.get("sample"), draft.get("eval")
        if sample and forward and sample[0] > forward[0]:
            yield Finding(
                "HOST_SAMPLING",
                f"sampling drafts takes {sample[0]:.0f} ms, all draft forwards {forward[0]:.0f} ms "
                f"({forward[0] / max(forward[1], 1):.2f} ms each): the draft model is not the "
                "cause",
                {
                    "draft_sample_ms": sample[0],
                    "draft_eval_ms": forward[0],
                    "draft_ms_per_forward": round(forward[0] / max(forward[1], 1), 3),
                    "share": shares.get("draft_sample"),
                },
            )


def _counted(input: str, found: dict[str, int], seconds: float | None) -> Iterator[Record]:
    """The window of a run. Drafts may be shorter than n_draft, so their number is often unknown."""
    k, proposed, accepted = found.get("n_draft"), found["n_drafted"], found["n_accept"]
    tokens = found["n_predict"]
    drafts = proposed // k if k and proposed % k == 0 else None
    if drafts is not None and drafts + accepted < ALL_STEPS * tokens:
        drafts = None
    steps = drafts if drafts is not None else tokens - accepted
    length: float | None = None
    estimated: tuple[str, ...] = ()
    if drafts is None and steps > 0 and accepted <= proposed:
        length, estimated = tokens / steps, ("mean_length", "round_ms")
        yield Finding(
            "MEAN_LENGTH_ESTIMATED",
            f"about {steps} steps for {tokens} tokens",
            {"steps": steps, "mean_length": round(length, 4)},
        )
    yield Window(
        input,
        "llama.cpp",
        grain="run",
        seconds=seconds,
        k=k,
        drafts=drafts,
        proposed=proposed,
        accepted=accepted,
        generated=tokens,
        printed_length=length,
        throughput_tok_s=tokens / seconds if seconds else None,
        round_ms=1000 * seconds / steps if seconds and steps > 0 else None,
        estimated=estimated,
    )
