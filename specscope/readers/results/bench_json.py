"""Result files of `vllm bench serve`, SGLang's bench_serving, guidellm, AIPerf and llama.cpp's
SPEED-Bench client.

A result with speculation fields is a window and an arm. A result without them is an arm, and other
arms decide its role. vLLM prints rates in percent and position rates as fractions in the same file;
its speculation fields are a difference of two scrapes and include other traffic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specscope.readers.records import LONGEST_DRAFT, Arm, Finding, Record, Window
from specscope.readers.results.json_file import count, dicts, documents, looks_like_json, real
from specscope.readers.source import Source, arm_name
from specscope.readers.tables.arm_roles import Sign, decided
from specscope.readers.tables.names import is_total, k_of

_KEYS = (b'"output_throughput"', b'"spec_decode_', b'"output_token_throughput"', b'"accept_length"',
         b'"avg_pred_t_s"')  # fmt: skip
_OFFLINE = (b'"elapsed_time"', b'"tokens_per_second"')
_GUIDELLM = (b'"benchmarks"', b'"output_tokens_per_second"')


class BenchJson:
    """One result per document; JSON lines hold one per line."""

    format = "bench-json"

    def sniff(self, head: bytes) -> float:
        """0.8 for JSON with the tools' throughput or speculation keys."""
        if not looks_like_json(head):
            return 0.0
        guide = any(all(key in head for key in keys) for keys in (_GUIDELLM, _OFFLINE))
        early = b'"endpoint_type"' in head and b'"num_prompts"' in head
        return 0.8 if guide or early or any(key in head for key in _KEYS) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """Read the arms of all results, and a window for each with measured speculation."""
        for document in documents(source.stream):
            results = [document] if isinstance(document, dict) else document
            for result in results if isinstance(results, list) else []:
                if isinstance(result, dict):
                    yield from _result(source.name, _name(source.name, result), result)


def _result(input: str, name: str, result: dict[str, Any]) -> Iterator[Record]:
    if "benchmarks" in result and isinstance(result["benchmarks"], list):
        for benchmark in result["benchmarks"]:
            if isinstance(benchmark, dict):
                yield from flat(input, name, _guidellm(benchmark))
        return
    if isinstance(result.get("summary"), list):
        for row in dicts(result["summary"], 2):
            if row.get("category") and not is_total(str(row["category"])):
                yield from flat(input, name, _speed_bench(row, result), "llama.cpp")
        return
    if isinstance(result.get("output_token_throughput"), dict):
        yield from flat(input, name, _aiperf(result), "unknown")
        return
    yield from flat(input, name, result)


def flat(
    input: str, name: str, result: dict[str, Any], engine: str | None = None
) -> Iterator[Record]:
    """The arm of one flat result, and its window if speculation was measured.

    engine: the engine, if known; otherwise counts identify vLLM, and the rest is SGLang.
    """
    tok_s = real(result, "output_throughput", "output_token_throughput", "tokens_per_second")
    tpot = real(result, "mean_tpot_ms", "median_tpot_ms")
    drafts = count(result, "spec_decode_num_drafts")
    length = real(result, "spec_decode_acceptance_length", "accept_length")
    rates = result.get("spec_decode_per_position_acceptance_rates")
    positions = None
    if isinstance(rates, list) and len(rates) <= LONGEST_DRAFT and all(map(_is_rate, rates)):
        positions = tuple(map(float, rates)) or None
    proposed = count(result, "spec_decode_draft_tokens")
    speculated = bool(drafts) or bool(proposed) or (length is not None and length >= 1)
    concurrency = count(result, "max_concurrency") or None
    completed = count(result, "completed", "num_prompts")
    output = count(result, "total_output_tokens")
    conditions = {"concurrency": concurrency, "label": _traffic(result)}
    metrics = {
        "throughput_tok_s": tok_s,
        "tpot_ms": tpot,
        "itl_ms": real(result, "mean_itl_ms"),
        "ttft_ms": real(result, "mean_ttft_ms"),
        "latency_ms": real(result, "mean_e2el_ms", "mean_e2e_latency_ms"),
        "request_s": real(result, "request_throughput", "requests_per_second"),
    }
    if output and completed:
        metrics["output_tokens"] = output / completed
    itl = real(result, "mean_itl_ms")
    role, basis = ("speculative", "stated") if speculated else _role(name, result, tpot, itl)
    if not speculated and tpot and itl and itl > CHUNKED * tpot:
        yield Finding(
            "CHUNKED_STREAM",
            f"{name}: {itl:.1f} ms between chunks and {tpot:.1f} ms per token: {itl / tpot:.2f} "
            f"tokens "
            "come at once, as under speculation",
            {"itl_ms": itl, "tpot_ms": tpot},
        )
    yield Arm(
        input,
        name,
        role,
        k=len(positions) if positions else k_of(name) if speculated else None,
        conditions={key: value for key, value in conditions.items() if value is not None},
        metrics={key: value for key, value in metrics.items() if value is not None},
        settings={"speculation_fields": drafts is not None or length is not None},
        basis=basis,
    )
    if result.get("dataset_name") == "random":
        yield Finding("SYNTHETIC_PROMPTS", "this benchmark sent random tokens")
    if not speculated:
        return
    window = Window(
        input,
        engine or ("vllm" if drafts is not None else "sglang"),
        grain="run",
        label=", ".join(filter(None, [name, _traffic(result)])),
        seconds=real(result, "duration"),
        k=len(positions) if positions else None,
        drafts=drafts,
        proposed=proposed,
        accepted=count(result, "spec_decode_accepted_tokens"),
        generated=output,
        printed_positions=positions,
        printed_rate=_percent(real(result, "spec_decode_acceptance_rate"))
        or real(result, "draft_acceptance_rate"),
        printed_length=length,
        throughput_tok_s=tok_s,
        tolerance=0.011,
    )
    mean = length
    if drafts and window.accepted is not None:
        mean = 1 + window.accepted / drafts
    yield _timed(window, mean, tpot)


def _role(
    name: str, result: dict[str, Any], tpot: float | None, itl: float | None
) -> tuple[str, str]:
    """(role, its basis) of a result without figures of speculation.

    A run without speculation has one token per chunk, or speculation fields with null. A result
    without such fields stays unknown.
    """
    role, basis = decided(Sign(name, speculation=True))
    chunked = bool(tpot and itl and itl > CHUNKED * tpot)
    if role != "unknown" and not (chunked and basis == "word"):
        return role, basis
    absent = any(key in result and result[key] is None for key in _LENGTHS)
    single = bool(tpot and itl and abs(itl / tpot - 1) < SINGLE)
    return (
        ("target_only", "inferred") if (absent or single) and not chunked else ("unknown", "stated")
    )


CHUNKED = 1.5
SINGLE = 0.1
_LENGTHS = ("accept_length", "spec_decode_acceptance_length", "spec_decode_num_drafts")


def _timed(window: Window, mean: float | None, tpot: float | None) -> Window:
    """A round gives `mean` tokens of `tpot` each."""
    return replace(window, round_ms=tpot * mean if tpot and mean else None)


def _guidellm(benchmark: dict[str, Any]) -> dict[str, Any]:
    """guidellm nests each metric as {successful: {mean}}, or {mean} in older versions."""
    metrics = benchmark.get("metrics")
    metrics = metrics if isinstance(metrics, dict) else benchmark

    def mean(name: str) -> float | None:
        value = metrics.get(name)
        for inner in dicts(value, 2):
            if isinstance(inner.get("successful"), dict):
                return real(inner["successful"], "mean")
            if real(inner, "mean") is not None:
                return real(inner, "mean")
        return None

    concurrency = mean("request_concurrency")
    return {
        "output_throughput": mean("output_tokens_per_second"),
        "mean_tpot_ms": mean("time_per_output_token_ms"),
        "mean_itl_ms": mean("inter_token_latency_ms"),
        "mean_ttft_ms": mean("time_to_first_token_ms"),
        "request_throughput": mean("requests_per_second"),
        "max_concurrency": round(concurrency) if concurrency else None,
    }


def _aiperf(result: dict[str, Any]) -> dict[str, Any]:
    """AIPerf holds {unit, avg, p50 ...} per metric."""

    def average(name: str) -> float | None:
        value = result.get(name)
        return real(value, "avg") if isinstance(value, dict) else None

    return {
        "output_throughput": average("output_token_throughput"),
        "mean_itl_ms": average("inter_token_latency"),
        "mean_tpot_ms": average("inter_token_latency"),
        "mean_ttft_ms": average("time_to_first_token"),
        "mean_e2el_ms": average("request_latency"),
        "request_throughput": average("request_throughput"),
        # Means over requests are none over rounds: AIPerf's own totals come first.
        "accept_length": average("spec_decode_token_weighted_acceptance_length")
        or average("mean_acceptance_length"),
        "spec_decode_num_drafts": average("total_spec_decode_steps"),
        "spec_decode_draft_tokens": average("total_draft_tokens"),
        "spec_decode_accepted_tokens": average("total_accepted_draft_tokens"),
        "max_concurrency": next(
            (c for d in dicts(result.get("input_config"), 3) if (c := count(d, "concurrency"))),
            None,
        ),
    }


def _speed_bench(row: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """llama.cpp's client has a row per category; a category without drafts has a null rate."""
    latency, rate = real(row, "avg_latency"), real(row, "accept_rate")
    config = result.get("config")
    return {
        "dataset_name": row["category"],
        "output_throughput": real(row, "avg_pred_t_s"),
        "mean_e2el_ms": latency * 1000 if latency else None,
        "max_concurrency": count(config, "concurrency") if isinstance(config, dict) else None,
        "spec_decode_num_drafts": None,
        "spec_decode_draft_tokens": row.get("draft_n"),
        "spec_decode_accepted_tokens": row.get("accepted"),
        "spec_decode_acceptance_rate": rate * 100 if rate is not None else None,
    }


def _name(input: str, result: dict[str, Any]) -> str:
    """The run's label, else the file's name; results with equal names are repetitions."""
    label = result.get("label")
    if isinstance(label, str) and label:
        return label
    return arm_name(input)


def _traffic(result: dict[str, Any]) -> str | None:
    """Conditions without a separate field: dataset and offered rate."""
    rate = result.get("request_rate")
    parts = [str(result["dataset_name"])] if result.get("dataset_name") else []
    if rate not in (None, "inf") and rate != float("inf"):
        parts.append(f"{rate} req/s")
    return ", ".join(parts) or None


def _percent(value: float | None) -> float | None:
    return value / 100 if value is not None else None


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
