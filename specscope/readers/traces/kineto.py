"""Kineto (PyTorch profiler) traces, plain or gzipped, read event by event.

`ts` and `dur` are microseconds. Kernels carry the correlation id of their launch; a graph launch
owns all kernels of its replay. `gpu_user_annotation` is an annotation projected on the device.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from specscope.readers.records import Finding, Origin, Record
from specscope.readers.results.json_file import elements, real
from specscope.readers.source import Source
from specscope.readers.traces.phases import phase_of_name
from specscope.readers.traces.spans import Span
from specscope.readers.traces.timeline import Timeline

_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
_RUNTIME = {"cuda_runtime", "cuda_driver"}


class KinetoTrace:
    """One trace file of one rank."""

    format = "kineto"

    def sniff(self, head: bytes) -> float:
        """0.95 for a trace's key, whatever stands around it."""
        return 0.95 if b'"traceEvents"' in head else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """The time of a round, over the device with most work."""
        if b'"vllm_version"' in source.head:
            yield Origin("vllm")
        timeline = Timeline(source.name)
        devices: dict[Any, list[Span]] = defaultdict(list)
        for event in elements(source.stream, "traceEvents"):
            category = event.get("cat")
            span = _span(event) if event.get("ph") == "X" else None
            if span is None:
                continue
            if category in _DEVICE:
                devices[_device(event)].append(span)
            elif category in _RUNTIME:
                if "launch" in span.name.lower():
                    timeline.launches.append(span)
            elif category == "user_annotation":
                timeline.annotations.append(span)
            elif category == "gpu_user_annotation":
                timeline.device_annotations.append(span)
        if devices:
            counts = Counter({device: len(spans) for device, spans in devices.items()})
            timeline.device = devices[counts.most_common(1)[0][0]]
        named = {s.name for s in timeline.annotations + timeline.device}
        yield from timeline.records()
        if timeline.device and not _says_phases(named):
            yield Finding("TRACE_BY_STRUCTURE", "no name in the trace speaks of draft or verify")


def _span(event: dict[str, Any]) -> Span | None:
    start, duration = real(event, "ts"), real(event, "dur")
    if start is None or duration is None or duration < 0:
        return None
    args = event.get("args")
    key = args.get("correlation") if isinstance(args, dict) else None
    return Span(
        start, start + duration, str(event.get("name")), key if isinstance(key, int) else None
    )


def _device(event: dict[str, Any]) -> Any:
    args = event.get("args")
    device = args.get("device") if isinstance(args, dict) else None
    return str(device if device is not None else event.get("pid"))


def _says_phases(names: set[str]) -> bool:
    return any(phase_of_name(name) for name in names)
