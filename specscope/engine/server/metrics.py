"""The served engine's metrics in Prometheus' text format."""

from bisect import bisect_left
from collections import Counter

from specscope.engine.api import RequestEnd, RequestInfo, RoundReport
from specscope.engine.decode.engine import Engine

PREFIX = "specscope_engine"
PARTS = ("wall", "prefill", "catchup", "draft", "verify", "sample", "idle")
COUNTERS = {
    "rounds_total": "Rounds.",
    "round_seconds_total": "Time of rounds by part.",
    "proposed_tokens_total": "Draft tokens offered.",
    "accepted_tokens_total": "Draft tokens accepted.",
    "tested_at_position_total": "Drafts whose proposals before this position were all accepted.",
    "accepted_at_position_total": "Drafts whose proposal at this position was accepted.",
    "emitted_tokens_total": "Tokens that came out.",
    "prefill_tokens_total": "Prompt tokens read by the target, again after preemptions too.",
    "preemptions_total": "Sequences put back into the queue because the cache was full.",
    "sequence_rounds_total": "Rounds, counted once for each sequence in them.",
    "requests_total": "Requests that ended, by reason.",
}
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)
HISTOGRAMS = {
    "queue_seconds": "Time from arrival to the first row.",
    "time_to_first_token_seconds": "Time from arrival to the first token.",
    "inter_token_seconds": "Mean time between two tokens of a request.",
    "request_seconds": "Time from arrival to the end.",
}


class Histogram:
    """Counts of values in the buckets of SECONDS."""

    def __init__(self) -> None:
        self.counts, self.sum = [0] * (len(SECONDS) + 1), 0.0

    def add(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.sum += seconds

    def lines(self, name: str) -> list[str]:
        """The cumulative buckets, the sum and the count."""
        total, lines = 0, []
        for bound, count in zip((*SECONDS, "+Inf"), self.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self.sum:.10g}", f"{name}_count {total}"]


class EngineMetrics:
    """An observer that counts."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.histograms = {name: Histogram() for name in HISTOGRAMS}

    def round_begins(self) -> None:
        """Nothing to count yet."""

    def round_ended(self, report: RoundReport) -> None:
        """Add a round."""
        counts = self.counts
        counts["rounds_total", ""] += 1
        counts["prefill_tokens_total", ""] += report.prefill_tokens
        counts["preemptions_total", ""] += report.preempted
        counts["sequence_rounds_total", ""] += len(report.requests)
        counts["proposed_tokens_total", ""] += sum(report.k)
        counts["accepted_tokens_total", ""] += sum(report.accepted)
        counts["emitted_tokens_total", ""] += sum(report.emitted)
        for k, accepted in zip(report.k, report.accepted, strict=True):
            for position in range(1, min(k, accepted + 1) + 1):
                label = f'{{position="{position}"}}'
                counts["tested_at_position_total", label] += 1
                counts["accepted_at_position_total", label] += position <= accepted
        for part in PARTS:
            seconds = (getattr(report, f"{part}_us") or 0.0) / 1e6
            counts["round_seconds_total", f'{{part="{part}"}}'] += seconds  # type: ignore[assignment]

    def admitted(self, request: RequestInfo) -> None:
        """Nothing to count."""

    def ended(self, end: RequestEnd) -> None:
        """Add a request. Its latencies count only if it was not aborted."""
        self.counts["requests_total", f'{{reason="{end.reason}"}}'] += 1
        if end.reason == "abort":
            return
        times = {
            "queue_seconds": end.queue_ms,
            "time_to_first_token_seconds": end.ttft_ms,
            "request_seconds": end.e2e_ms,
        }
        if end.decode_ms is not None and end.output_tokens > 1:
            times["inter_token_seconds"] = end.decode_ms / (end.output_tokens - 1)
        for name, milliseconds in times.items():
            if milliseconds is not None:
                self.histograms[name].add(1e-3 * milliseconds)

    def render(self, engine: Engine) -> str:
        """Everything, with the requests that run and wait now."""
        lines = []
        for name, text in COUNTERS.items():
            full = f"{PREFIX}_{name}"
            lines += [f"# HELP {full} {text}", f"# TYPE {full} counter"]
            for (counter, labels), value in sorted(self.counts.items()):
                if counter == name:
                    lines.append(f"{full}{labels} {value:.10g}")
        for name, text in HISTOGRAMS.items():
            full = f"{PREFIX}_{name}"
            lines += [f"# HELP {full} {text}", f"# TYPE {full} histogram"]
            lines += self.histograms[name].lines(full)
        for name, number in (("running", len(engine.rows)), ("waiting", len(engine.queue))):
            lines += [f"# TYPE {PREFIX}_{name} gauge", f"{PREFIX}_{name} {number}"]
        return "\n".join(lines) + "\n"
