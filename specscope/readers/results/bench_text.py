"""What `vllm bench serve` and SGLang's bench_serving print, as people paste it.

The block carries the same figures as the JSON result, rounded; position rates are in percent here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from specscope.readers.logs.lines import number, plain
from specscope.readers.records import Record, Window
from specscope.readers.results.bench_json import flat
from specscope.readers.source import arm_name

_LINE = re.compile(r"^\W*([A-Z][A-Za-z0-9 \-()%/.\[\]]*?):\s+(\S+)")
_POSITION = re.compile(r"^\W*Position (\d{1,3}):\s+(\S+)")
_KEYS = {
    "successful requests": "completed",
    "maximum request concurrency": "max_concurrency",
    "max request concurrency": "max_concurrency",
    "max reqeuest concurrency": "max_concurrency",  # as older SGLang spells it
    "request rate configured (rps)": "request_rate",
    "benchmark duration (s)": "duration",
    "total generated tokens": "total_output_tokens",
    "request throughput (req/s)": "request_throughput",
    "output token throughput (tok/s)": "output_throughput",
    "mean ttft (ms)": "mean_ttft_ms",
    "mean tpot (ms)": "mean_tpot_ms",
    "median tpot (ms)": "median_tpot_ms",
    "mean itl (ms)": "mean_itl_ms",
    "mean e2el (ms)": "mean_e2el_ms",
    "mean e2e latency (ms)": "mean_e2e_latency_ms",
    "acceptance rate (%)": "spec_decode_acceptance_rate",
    "acceptance length": "spec_decode_acceptance_length",
    "accept length": "accept_length",
    "drafts": "spec_decode_num_drafts",
    "draft tokens": "spec_decode_draft_tokens",
    "accepted tokens": "spec_decode_accepted_tokens",
    # trtllm-bench
    "number of requests": "completed",
    "number of concurrent requests": "max_concurrency",
    "total output throughput (tokens/sec)": "output_throughput",
    "request throughput (req/sec)": "request_throughput",
    "average request latency (ms)": "mean_e2el_ms",
    "average time-to-first-token [ttft] (ms)": "mean_ttft_ms",
    "average time-per-output-token [tpot] (ms)": "mean_tpot_ms",
    "al] average": "accept_length",
    "ar] average": "accept_length",  # as versions of 2025 call it
    "dar] average": "draft_acceptance_rate",
}
_OFFLINE = re.compile(r"Throughput: ([\d.]{1,15}) requests/s, .*?([\d.]{1,15}) output tokens/s\s*$")
"""`vllm bench throughput`, since it tells output tokens from all."""

_HEADERS = ("Serving Benchmark Result", "= REQUEST DETAILS")
_TRTLLM = ("Total Output Throughput (tokens/sec)", "= REQUEST DETAILS")


class BenchText:
    """One arm per printed block; blocks of one file and one concurrency are repetitions."""

    name = "bench-text"
    gates = (
        b"Serving Benchmark Result",
        b"Output token throughput (tok/s):",
        b"Total Output Throughput (tokens/sec):",
        b" output tokens/s",
        b"= DECODING STATISTICS",
    )
    marks = (
        b"Serving Benchmark Result",
        b"= REQUEST DETAILS",
        b"= DECODING STATISTICS",
        b"requests:",
        b"concurrency:",
        b"(RPS):",
        b"(s):",
        b"generated tokens:",
        b"hroughput (",
        b"latency (",
        b"] AVERAGE",
        b" output tokens/s",
        b"(ms):",
        b"cceptance ",
        b"Accept length:",
        b"Drafts:",
        b"Draft tokens:",
        b"Accepted tokens:",
        b"Position ",
    )

    def __init__(self, input: str) -> None:
        self._input = input
        self._found: dict[str, float] = {}
        self._positions: list[float] = []
        self._engine: str | None = None
        self._lines = 0

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:  # noqa: ARG002
        text = plain(line)
        if any(header in text for header in _HEADERS):
            ended = list(self.finish())
            self._engine = "tensorrt-llm" if _TRTLLM[1] in text else None
            return ended
        if _TRTLLM[0] in text or "= DECODING STATISTICS" in text:
            self._engine = "tensorrt-llm"
        offline = _OFFLINE.search(text)
        if offline:
            return self._offline(*offline.groups())
        position = _POSITION.match(text)
        if position:
            value = number(position.group(2))
            if value is not None and int(position.group(1)) == len(self._positions):
                self._positions.append(value / 100)
            return ()
        match = _LINE.match(text)
        key = _KEYS.get(match.group(1).lower()) if match else None
        value = number(match.group(2)) if match else None
        if key and value is not None:
            # A block pasted without its header starts again with its first figure.
            ended = list(self.finish()) if key in self._found and key == "output_throughput" else []
            self._found[key] = value
            return ended
        return ()

    @staticmethod
    def _found_length(found: dict[str, object]) -> float | None:
        length = found.get("accept_length")
        return length if isinstance(length, float) and length > 1 else None

    def _offline(self, requests: str, tokens: str) -> list[Record]:
        """A line that is a whole result; several of one file are runs of their own."""
        self._lines += 1
        name = arm_name(self._input) + (f" {self._lines}" if self._lines > 1 else "")
        result = {"output_throughput": number(tokens), "request_throughput": number(requests)}
        return list(flat(self._input, name, result))

    def finish(self) -> Iterator[Record]:
        found: dict[str, object] = dict(self._found)
        positions, self._positions, self._found = self._positions, [], {}
        if "output_throughput" not in found and "mean_tpot_ms" not in found:
            length = self._found_length(found)
            if length is not None:  # statistics of decoding apart from those of speed
                engine = self._engine or "unknown"
                yield Window(self._input, engine, grain="run", printed_length=length)
            return
        if positions:
            found["spec_decode_per_position_acceptance_rates"] = positions
        yield from flat(self._input, arm_name(self._input), found, self._engine)
