"""The nearest formats of an unrecognised file."""

from __future__ import annotations

import re
from typing import NamedTuple

from specscope.readers.results.json_file import looks_like_json
from specscope.readers.tables.csv_file import cells_of, delimiter


class Known(NamedTuple):
    """A format: the kind of text it is, its mark, and other words that its files hold."""

    name: str
    kind: str
    mark: str
    words: str


_KNOWN = (
    Known("vLLM server log", "text", "SpecDecoding metrics:",
          "vllm engine avg generation throughput drafted acceptance running waiting info"),
    Known("llama.cpp server log", "text", "draft acceptance rate =",
          "llama slot print_timing eval prompt srv decoded draft ms per second"),
    Known("SGLang server log", "text", "Decode batch",
          "sglang accept len queue-req running-req gen throughput token usage prefill"),
    Known("Prometheus text", "text", "vllm:spec_decode_num_drafts_total",
          "help type counter gauge histogram bucket total sum count le seconds"),
    Known("benchmark result as JSON", "json", '"output_throughput"',
          "mean median p99 ttft tpot itl request duration completed throughput benchmarks"),
    Known("per-request metrics as JSON", "json", '"num_spec_steps"',
          "usage completion_tokens choices meta_info timings finish_reason id model response"),
    Known("Spec-Bench answers as JSON lines", "json", '"accept_lengths"',
          "question_id category turns choices new_tokens wall_time idxs decoding_steps tstamp"),
    Known("Kineto trace", "json", '"traceEvents"',
          "ph ts dur pid tid cat name args displayTimeUnit schemaVersion kernel"),
    Known("TensorRT-LLM iteration JSON", "json", '"specDecodingStats"',
          "iter iterLatencyMS inflightBatchingStats kvCacheStats numGenRequests gpuMemUsage"),
    Known("benchmark table", "table", "arm,tok_s",
          "config method batch concurrency context k speedup throughput tokens latency tpot"),
    Known("nvidia-smi CSV", "table", "utilization.gpu [%]",
          "timestamp index uuid name power draw memory clocks temperature utilization gpu"),
    Known("Nsight Systems kernel CSV", "table", "Start (ns),Duration (ns)",
          "start duration kernel name grid block registers stream device corrid time"),
)  # fmt: skip


def nearest(head: bytes) -> tuple[Known, Known]:
    """Two formats of the file's kind whose words it shares most, the nearer one first."""
    kind = _kind(head)
    present = set(re.findall(r"[a-z][\w.-]*", head.decode("utf-8", "replace").lower()))

    def distance(known: Known) -> tuple[bool, int]:
        words = {word.lower() for word in known.words.split()}
        return known.kind != kind, -len(words & present)

    first, second, *_ = sorted(_KNOWN, key=distance)
    return first, second


def _kind(head: bytes) -> str:
    if looks_like_json(head):
        return "json"
    lines = [line for line in head.decode("utf-8-sig", "replace").splitlines()[:8] if line.strip()]
    widths = {len(cells_of(line, delimiter(line))) for line in lines}
    return "table" if len(lines) > 1 and len(widths) == 1 and widths != {1} else "text"
