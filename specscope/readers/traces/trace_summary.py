"""Summaries of trace tools: idle or busy shares, with or without their basis.

The basis is the share of launches that have kernels in the trace. Without it, a share of idle time
is meaningless. Kernels per
graph launch show whether a tool that follows CPU operators can attribute the work.
"""

from __future__ import annotations

from collections.abc import Iterator

from specscope.readers.records import Finding, Record, TimeParts
from specscope.readers.results.json_file import dicts, documents, looks_like_json, real
from specscope.readers.source import Source

ENOUGH_COVERAGE = 0.95
MANY_KERNELS = 50
"""Above so many kernels per launch, nearly all device time belongs to few CPU events."""

_IDLE = (("idle_pct", 0.01), ("idle_percent", 0.01), ("idle_share", 1.0), ("idle_of_wall", 1.0))
_BUSY = (("active_pct", 0.01), ("busy_pct", 0.01), ("busy_of_wall", 1.0), ("busy_share", 1.0))


class TraceSummary:
    """One JSON of summary figures, nested as its tool likes."""

    format = "trace-summary-json"

    def sniff(self, head: bytes) -> float:
        """0.5 for JSON with an idle or busy share."""
        names = [name for name, _ in _IDLE + _BUSY] + ["graph_launches"]
        return (
            0.5 if looks_like_json(head) and any(f'"{n}"'.encode() in head for n in names) else 0.0
        )

    def read(self, source: Source) -> Iterator[Record]:
        """Idle time if the coverage is sufficient; otherwise the reason for none."""
        idle: dict[str, float] = {}
        launches = kernels = covered = None
        for document in documents(source.stream):
            for found in dicts(document):
                for name, factor in _IDLE:
                    value = real(found, name)
                    if value is not None:
                        idle[f"{name}={value:g}"] = value * factor
                for name, factor in _BUSY:
                    value = real(found, name)
                    if value is not None:
                        idle[f"{name}={value:g}"] = 1 - value * factor
                launches = real(found, "graph_launches") or launches
                kernels = real(found, "kernel_events", "kernels") or kernels
                covered = (
                    real(found, "launches_with_kernels", "graph_launches_with_kernels") or covered
                )
        coverage = covered / launches if covered is not None and launches else None
        yield from _judge(source.name, idle, launches, kernels, coverage)


def _judge(
    input: str,
    idle: dict[str, float],
    launches: float | None,
    kernels: float | None,
    coverage: float | None,
) -> Iterator[Record]:
    known = coverage is not None and coverage >= ENOUGH_COVERAGE and len(idle) == 1
    share = next(iter(idle.values())) if known else None
    per_launch = kernels / launches if kernels and launches else None
    yield TimeParts(input, idle_share=share, trace_coverage=coverage)
    if known:
        return
    values = sorted(idle.values())
    spread = (
        f"; figures here range from {values[0]:.0%} to {values[-1]:.0%} idle"
        if len(values) > 1
        else ""
    )
    attributed = ""
    if per_launch and per_launch > MANY_KERNELS:
        attributed = (
            f"; {per_launch:.0f} kernels per graph launch: attribution by CPU operator covers "
            "almost nothing"
        )
    yield Finding(
        "TRACE_UNDER_RECORDED",
        "idle unknown: the share of graph launches with kernels is not stated or too small"
        + spread
        + attributed,
        {
            "trace_coverage": coverage,
            "kernels_per_launch": round(per_launch, 1) if per_launch else None,
            "idle_claims": {name: round(value, 4) for name, value in idle.items()},
        },
    )
