"""Acceptance fields of single responses, from engines and clients.

vLLM `metrics.speculative_decoding`, TensorRT-LLM `speculative_decoding`, AIPerf acceptance records
(one set of names), SGLang `meta_info`, llama.cpp `timings`; what clients say where none of these
is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from specscope.readers.logs.llamacpp_log import from_timings
from specscope.readers.logs.llamacpp_request import Requests
from specscope.readers.records import LONGEST_DRAFT, Finding, Record, Window
from specscope.readers.results.client_usage import responses, speaks, usage
from specscope.readers.results.json_file import count, dicts, documents, looks_like_json, real
from specscope.readers.source import Source

_KEYS = (
    b'"num_spec_steps"',
    b'"spec_accept_',
    b'"spec_verify_ct"',
    b'"predicted_n"',
    b'"num_accepted_draft_tokens"',
    b'"spec_num_correct_drafts"',
    b'"avg_spec_accept_length"',
)


_SGLANG_PROPOSED = ("spec_num_proposed_drafts", "spec_draft_token_num", "spec_draft_tokens")
_SGLANG_ACCEPTED = ("spec_num_correct_drafts", "spec_accept_token_num", "spec_accepted_tokens")


class RequestJson:
    """Responses, or the parts of them that speak of speculation, in any nesting."""

    format = "request-metrics"

    def sniff(self, head: bytes) -> float:
        """0.7 for JSON with one of the per-request keys."""
        if not looks_like_json(head):
            return 0.0
        return 0.7 if any(key in head for key in _KEYS) or speaks(head) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """One window per request."""
        llamacpp = Requests(source.name)
        for document in documents(source.stream):
            engines = False
            for found in dicts(document):
                engines = engines or any(f'"{name}"'.encode() in _KEYS for name in found)
                if "draft_rounds" in found:
                    yield from _mlx(source.name, found)
                elif "predicted_n" in found:
                    yield from llamacpp.records(from_timings(found))
                elif "num_spec_steps" in found:
                    yield from _steps(source.name, found)
                elif "avg_spec_accept_length" in found:
                    yield Window(
                        source.name,
                        "sglang",
                        grain="counter",
                        printed_length=real(found, "avg_spec_accept_length"),
                    )
                elif any(key.startswith("spec_") for key in found):
                    yield from sglang_request(source.name, found)
            if not engines:
                for response in responses(document):
                    yield from usage(source.name, response)


def _steps(input: str, found: dict[str, Any]) -> Iterator[Window]:
    """The names that vLLM, TensorRT-LLM and AIPerf share, or nearly."""
    lengths = list(_by_length(input, found))
    if lengths:
        yield from lengths
        return
    engine = found.get("engine")
    drafted = found.get("per_step_drafted")
    histogram = found.get("acceptance_histogram")
    steps = count(found, "num_spec_steps")
    at = _survivals(histogram, steps)
    yield Window(
        input,
        engine
        if isinstance(engine, str)
        else "vllm"
        if "per_step_accepted" in found
        else "unknown",
        grain="request",
        k=count(found, "num_spec_tokens"),
        drafts=steps,
        proposed=count(found, "num_draft_tokens", "total_draft_tokens"),
        accepted=count(found, "num_accepted_draft_tokens", "total_accepted_draft_tokens"),
        generated=count(found, "completion_tokens"),
        counted_at=at if not isinstance(drafted, list) or len(set(map(str, drafted))) < 2 else None,
        printed_length=real(found, "mean_acceptance_length"),
        tolerance=0.011,
    )


def _by_length(input: str, found: dict[str, Any]) -> Iterator[Window]:
    """A window for each draft length of vLLM's `acceptance_histogram_by_draft_length`, where they
    add up to the request's own counts: positions of drafts of several lengths have no rate."""
    table = found.get("acceptance_histogram_by_draft_length")
    if not isinstance(table, dict) or not all(str(k).isdecimal() for k in table):
        return
    windows = []
    for length, histogram in table.items():
        k, steps = int(length), sum(histogram) if _is_counts(histogram) else 0
        at = _survivals(histogram, steps)
        if not 0 < k <= LONGEST_DRAFT or not steps or at is None:
            continue
        windows.append(
            Window(
                input,
                "vllm",
                grain="request",
                k=k,
                drafts=steps,
                proposed=k * steps,
                accepted=sum(at),
                counted_at=at,
            )
        )
    own = count(found, "num_accepted_draft_tokens", "total_accepted_draft_tokens")
    if windows and sum(window.accepted or 0 for window in windows) == own:
        yield from windows


def _is_counts(histogram: object) -> TypeGuard[list[int]]:
    return isinstance(histogram, list) and all(isinstance(n, int) and n >= 0 for n in histogram)


def _mlx(input: str, found: dict[str, Any]) -> Iterator[Record]:
    """mlx-vlm counts its rounds, including tokens after the end of a text, which are removed
    here."""
    rounds, proposed = count(found, "draft_rounds"), count(found, "draft_n")
    accepted, tokens = count(found, "draft_n_accepted"), count(found, "predicted_n")
    ms = real(found, "predicted_ms")
    came_out = None
    if rounds is not None and accepted is not None and tokens is not None:
        over = rounds + accepted - tokens
        if over > rounds:  # the first token of a reply may come from the prompt's pass
            came_out = tokens
            yield Finding(
                "EOS_OVERCOUNT",
                f"{rounds + accepted} tokens are booked for a reply of {tokens}: those behind "
                f"its end "
                "were never received",
                {"counted": rounds + accepted, "emitted": tokens},
            )
    yield Window(
        input,
        "mlx-vlm",
        grain="request",
        k=proposed // rounds if rounds and proposed and proposed % rounds == 0 else None,
        drafts=rounds,
        proposed=proposed,
        accepted=accepted,
        came_out=came_out,
        generated=tokens,
        seconds=ms / 1000 if ms else None,
        throughput_tok_s=1000 * tokens / ms if tokens and ms else None,
        round_ms=ms / rounds if ms and rounds else None,
    )


def _survivals(histogram: object, steps: int | None) -> tuple[int, ...] | None:
    """Counts of accepted lengths 0, 1, ... to counts of positions that survived."""
    if not _is_counts(histogram) or len(histogram) > LONGEST_DRAFT + 1:
        return None
    if steps is None or sum(histogram) != steps:
        return None
    return tuple(sum(histogram[j:]) for j in range(1, len(histogram))) or None


def sglang_request(input: str, found: dict[str, Any]) -> Iterator[Record]:
    """The window of one `meta_info`; nothing if it says nothing of speculation."""
    length = real(found, "spec_accept_length")
    steps = count(found, "spec_verify_ct")
    proposed = count(found, *_SGLANG_PROPOSED)
    accepted = count(found, *_SGLANG_ACCEPTED)
    rate = real(found, "spec_accept_rate")
    if length is None and steps is None and rate is None:
        return
    finished = bool(found.get("finish_reason")) or bool(count(found, "completion_tokens"))
    if (length is not None and length < 1 and finished) or (
        rate is not None and not 0 <= rate <= 1
    ):
        yield Finding(
            "SOURCE_DEFECT",
            f"a finished request with accept length {length:g} and rate {rate}: impossible, so the "
            "field is not filled (SGLang before its fix, NGRAM); stored as unknown"
            if length is not None
            else f"an accept rate of {rate} is a defect of the source; stored as unknown",
            {"spec_accept_length": length, "spec_accept_rate": rate},
        )
        length = rate = None
        if not steps:
            yield Window(input, "sglang", grain="request", excluded="not filled by the source")
            return
    histogram = found.get("spec_correct_drafts_histogram")
    generated = count(found, "completion_tokens")
    estimated: tuple[str, ...] = ()
    if accepted is None and steps and generated and generated > steps:
        # One token comes from the prompt's pass, one more from each verification.
        accepted, estimated = generated - 1 - steps, ("accepted",)
    # spec_num_proposed_drafts is steps x (width - 1) whatever was really proposed.
    yield Window(
        input,
        "sglang",
        grain="request",
        k=proposed // steps if proposed and steps and proposed % steps == 0 else None,
        drafts=steps or None,
        proposed=proposed,
        accepted=accepted,
        generated=generated,
        counted_at=_survivals(histogram, steps),
        printed_length=length,
        printed_rate=rate if proposed is None else None,
        estimated=estimated,
        tolerance=0.5,
    )
