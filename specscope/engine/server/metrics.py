"""The served engine's metrics in Prometheus' text format."""

from collections import Counter

from specscope.engine.api import RequestEnd, RequestInfo, RoundReport
from specscope.engine.decode.engine import Engine

PARTS = ("wall", "prefill", "catchup", "draft", "verify", "sample", "idle")
HELP = {
    "rounds_total": "Rounds.",
    "round_seconds_total": "Time of rounds by part.",
    "proposed_tokens_total": "Draft tokens offered.",
    "accepted_tokens_total": "Draft tokens kept.",
    "emitted_tokens_total": "Tokens that came out.",
    "prefill_tokens_total": "Tokens of texts read by the target before their rounds.",
    "preemptions_total": "Sequences put back into the queue because the cache was full.",
    "sequence_rounds_total": "Rounds, counted once for each sequence in them.",
    "requests_total": "Requests that ended, by how.",
}


class EngineMetrics:
    """An observer that counts."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def round_begins(self) -> None:
        """Nothing to count yet."""

    def round_ended(self, report: RoundReport) -> None:
        """Add a round."""
        self.counts["rounds_total", ""] += 1
        self.counts["prefill_tokens_total", ""] += report.prefill_tokens
        self.counts["preemptions_total", ""] += report.preempted
        self.counts["sequence_rounds_total", ""] += len(report.requests)
        self.counts["proposed_tokens_total", ""] += sum(report.k)
        self.counts["accepted_tokens_total", ""] += sum(report.accepted)
        self.counts["emitted_tokens_total", ""] += sum(report.emitted)
        for part in PARTS:
            seconds = (getattr(report, f"{part}_us") or 0.0) / 1e6
            self.counts["round_seconds_total", f'{{part="{part}"}}'] += seconds  # type: ignore[assignment]

    def admitted(self, request: RequestInfo) -> None:
        """Nothing to count."""

    def ended(self, end: RequestEnd) -> None:
        """Add a request."""
        self.counts["requests_total", f'{{reason="{end.reason}"}}'] += 1

    def render(self, engine: Engine) -> str:
        """Everything, with what runs and waits now."""
        lines = []
        for name, text in HELP.items():
            full = f"specscope_engine_{name}"
            lines += [f"# HELP {full} {text}", f"# TYPE {full} counter"]
            for (counter, labels), value in sorted(self.counts.items()):
                if counter == name:
                    lines.append(f"{full}{labels} {value:.10g}")
        for name, number in (("running", len(engine.rows)), ("waiting", len(engine.queue))):
            lines += [f"# TYPE specscope_engine_{name} gauge", f"specscope_engine_{name} {number}"]
        return "\n".join(lines) + "\n"
