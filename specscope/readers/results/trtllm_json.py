"""TensorRT-LLM iteration statistics: the JSON that `trtllm-serve` answers on /metrics.

`specDecodingStats.iterLatencyMS` is the draft latency on the host in two-model mode, and keeps its
last value when nothing is drafted. In one-model mode it is always 0: unknown.
Source: PyExecutor's statistics, builds of 2025 and 2026.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from specscope.readers.records import Finding, Record, TimeParts, Window
from specscope.readers.results.json_file import count, documents, looks_like_json, real
from specscope.readers.source import Source


class TrtllmJson:
    """Iterations as an array, several arrays (polls), or one object per line."""

    format = "trtllm-iterations"

    def sniff(self, head: bytes) -> float:
        """0.9 for JSON with iteration fields."""
        found = b'"specDecodingStats"' in head or b'"inflightBatchingStats"' in head
        return 0.9 if looks_like_json(head) and found else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """One window per iteration; context-only iterations have no rounds."""
        run = _Run(source.name)
        for document in documents(source.stream):
            for iteration in document if isinstance(document, list) else [document]:
                if isinstance(iteration, dict):
                    yield from run.iteration(iteration)
        yield from run.finish()


class _Run:
    def __init__(self, input: str) -> None:
        self._input = input
        self._last: int | None = None
        self._numbers = (sys.maxsize, 0, 0)
        """Lowest and highest iteration number, and how many were seen."""
        self._draft_ms = self._wall_ms = 0.0
        self._drafted_rounds = self._rounds = 0
        self._printed: list[float] = []
        self._drafts = self._accepted = 0

    def iteration(self, found: dict[str, Any]) -> Iterator[Record]:
        number, rank = count(found, "iter"), count(found, "attentionDpRank") or 0
        if number is not None:
            if rank or number == self._last:
                yield Finding("DUPLICATE_RANKS", "attention-DP ranks repeat rank 0's statistics")
                return
            self._last = number
            low, high, seen = self._numbers
            self._numbers = (min(low, number), max(high, number), seen + 1)
        batch = _object(found, "inflightBatchingStats")
        spec = _object(found, "specDecodingStats")
        drafts = count(spec, "numRequestsWithDraftTokens")
        proposed, accepted = count(spec, "numDraftTokens"), count(spec, "numAcceptedTokens")
        context, decoding = count(batch, "numContextRequests"), count(batch, "numGenRequests")
        wall = real(found, "gpuForwardTimeMS", "iterLatencyMS")
        prefill_only = decoding == 0
        if prefill_only:
            drafts, proposed, accepted = 0, 0, 0  # dummy drafts of a context step are no rounds
        yield from self._times(spec, drafts, wall, context)
        if drafts:
            self._drafts += drafts
            self._accepted += accepted or 0
        generated = None
        if decoding is not None and drafts is not None and accepted is not None:
            generated = float(max(decoding - drafts, 0) + drafts + accepted)
        yield Window(
            self._input,
            "tensorrt-llm",
            start=str(found["timestamp"]) if "timestamp" in found else None,
            seconds=wall / 1000 if wall else None,
            drafts=drafts,
            proposed=proposed,
            accepted=accepted,
            k=proposed // drafts if drafts and proposed and proposed % drafts == 0 else None,
            generated=generated,
            running=decoding if decoding is not None else count(found, "numActiveRequests"),
            waiting=count(found, "numQueuedRequests"),
            round_ms=wall if drafts else None,
            throughput_tok_s=1000 * generated / wall if generated and wall else None,
        )

    def finish(self) -> Iterator[Record]:
        yield Finding("DRAINING_ENDPOINT", "/metrics empties its queue at every read")
        low, high, seen = self._numbers
        missing = high - low + 1 - seen if seen else 0
        if missing > 0:
            yield Finding(
                "ITERATION_GAP", f"{missing} iterations are missing", {"missing": missing}
            )
        if len(self._printed) > 1 and self._drafts:
            mean = sum(self._printed) / len(self._printed)
            pooled = 1 + self._accepted / self._drafts
            if abs(mean - pooled) > 0.01 * pooled:
                yield Finding(
                    "PRINTED_MEAN_UNWEIGHTED",
                    f"the printed lengths average {mean:.3f}; pooled from counts it is "
                    f"{pooled:.3f}",
                    {"mean_of_printed": round(mean, 4), "pooled": round(pooled, 4)},
                )
        if self._drafted_rounds:
            yield TimeParts(
                self._input,
                rounds=self._drafted_rounds,
                round_ms=self._wall_ms / self._drafted_rounds,
                draft_ms=self._draft_ms / self._drafted_rounds,
                verify_ms=(self._wall_ms - self._draft_ms) / self._drafted_rounds,
            )

    def _times(
        self, spec: dict[str, Any], drafts: int | None, wall: float | None, context: int | None
    ) -> Iterator[Record]:
        latency, printed = real(spec, "iterLatencyMS"), real(spec, "acceptanceLength")
        if drafts and printed:
            self._printed.append(printed)
        if not latency:
            return
        if not drafts:
            yield Finding(
                "STALE_DRAFT_LATENCY",
                f"draft latency {latency:g} ms in a step without a draft: stored as unknown",
                {"iterLatencyMS": latency, "draftOverhead": real(spec, "draftOverhead")},
            )
        elif wall and not context and latency < wall:
            self._drafted_rounds += 1
            self._draft_ms += latency
            self._wall_ms += wall


def _object(found: dict[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}
