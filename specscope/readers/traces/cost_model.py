"""Measured speeds of a pair of models (llama-bench) and of one speculative run, as one JSON.

Keys: target_tg_tok_s, target_pp_tok_s_by_batch {n: tok/s}, draft_tg_tok_s, run {n_draft, n_predict,
n_drafted, n_accept, decode_s, decode_tok_s}. The cost of verifying n tokens is n / speed(n), read
from the measured curve; it is never taken to be one step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from specscope.readers.logs.lines import whole
from specscope.readers.records import Arm, Finding, Record, TimeParts, Window
from specscope.readers.results.json_file import count, documents, looks_like_json, real
from specscope.readers.source import Source


class CostModel:
    """One pair, one run."""

    format = "cost-model-json"

    def sniff(self, head: bytes) -> float:
        """0.9 for the two speeds that make a prediction."""
        keys = (b'"target_tg_tok_s"', b'"draft_tg_tok_s"')
        return 0.9 if looks_like_json(head) and all(key in head for key in keys) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """The run as a window and an arm against target-only, and the prediction beside it."""
        for document in documents(source.stream):
            if isinstance(document, dict) and isinstance(document.get("run"), dict):
                yield from _run(source.name, document, document["run"])


def _run(input: str, speeds: dict[str, Any], run: dict[str, Any]) -> Iterator[Record]:
    k, proposed, accepted = count(run, "n_draft"), count(run, "n_drafted"), count(run, "n_accept")
    seconds, tok_s = real(run, "decode_s"), real(run, "decode_tok_s")
    drafts = proposed // k if k and proposed and proposed % k == 0 else None
    round_ms = 1000 * seconds / drafts if seconds and drafts else None
    yield Window(
        input,
        "llama.cpp",
        grain="run",
        seconds=seconds,
        k=k,
        drafts=drafts,
        proposed=proposed,
        accepted=accepted,
        generated=count(run, "n_predict"),
        throughput_tok_s=tok_s,
        round_ms=round_ms,
    )
    target = real(speeds, "target_tg_tok_s")
    if target and tok_s:
        yield Arm(input, "target only", "target_only", None, {}, {"throughput_tok_s": target})
        yield Arm(input, f"k={k}", "speculative", k, {}, {"throughput_tok_s": tok_s})
    if target and k and drafts and accepted is not None and round_ms:
        yield from _predict(
            input, speeds, target, k, 1 + accepted / drafts, round_ms, tok_s, drafts
        )


def _predict(
    input: str,
    speeds: dict[str, Any],
    target: float,
    k: int,
    tokens: float,
    round_ms: float,
    tok_s: float | None,
    drafts: int,
) -> Iterator[Record]:
    draft = real(speeds, "draft_tg_tok_s")
    verify_ms = _verify_ms(speeds.get("target_pp_tok_s_by_batch"), k)
    if not draft or verify_ms is None:
        return
    draft_ms, step_ms = 1000 * k / draft, 1000 / target
    predicted = 1000 * tokens / (draft_ms + verify_ms)
    one_step = 1000 * tokens / (draft_ms + step_ms)
    residual = round_ms - draft_ms - verify_ms
    closed = None
    p = (tokens - 1) / k
    if tok_s and 0 < p < 1:
        # Leviathan et al. with the cost ratio that averages the run's own time per token.
        closed = (1 - p ** (k + 1)) / ((1 - p) * (k * tok_s / draft + 1))
    yield TimeParts(
        input,
        rounds=drafts,
        round_ms=round_ms,
        draft_ms=draft_ms,
        verify_ms=verify_ms,
        parts_ms={"unexplained_per_round": residual},
    )
    yield Finding(
        "VERIFY_NOT_ONE_STEP",
        f"verifying {k} tokens takes {verify_ms:.1f} ms, {verify_ms / step_ms:.2f} target "
        "steps; from "
        f"the measured curve {predicted:.1f} tok/s are predicted, {residual:.1f} ms of a round "
        f"({residual / round_ms:.0%}) are not in the model",
        {
            "draft_ms": round(draft_ms, 3),
            "verify_ms": round(verify_ms, 3),
            "step_ms": round(step_ms, 3),
            "verify_steps": round(verify_ms / step_ms, 3),
            "predicted_round_ms": round(draft_ms + verify_ms, 3),
            "predicted_tok_s": round(predicted, 2),
            "predicted_speedup": round(predicted / target, 3),
            "predicted_if_one_step_tok_s": round(one_step, 2),
            "closed_form_speedup": round(closed, 3) if closed else None,
            "measured_round_ms": round(round_ms, 3),
            "residual_ms": round(residual, 3),
            "residual_share": round(residual / round_ms, 4),
        },
    )


def _verify_ms(curve: object, tokens: int) -> float | None:
    """T(N) = N / speed(N), linear between measured N; None outside the measured range."""
    if not isinstance(curve, dict):
        return None
    points: list[tuple[int, float]] = []
    for size, speed in curve.items():
        batch = whole(str(size))
        if batch and isinstance(speed, int | float) and speed > 0:
            points.append((batch, 1000 * batch / speed))
    points.sort()
    for (low, before), (high, after) in itertools.pairwise(points):
        if low <= tokens <= high:
            return before + (after - before) * (tokens - low) / (high - low)
    return None
