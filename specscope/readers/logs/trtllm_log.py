"""TensorRT-LLM iteration lines (`print_iter_log`): step times, no acceptance.

Order of the fields and `=` or `:` vary by version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from specscope.readers.logs.lines import plain
from specscope.readers.records import Record, Window

_FIELD = re.compile(r"'?(\w+)'?\s*[=:]\s*(-?\d{1,15}(?:\.\d{1,15})?)")
MERGE = 256
"""Steps per window: the log has one line per step."""


class TrtllmLog:
    """Pure decode steps, pooled into windows that hold a step time."""

    name = "trtllm-log"
    gates = (b"host_step_time",)
    marks = (b"host_step_time",)

    def __init__(self, input: str) -> None:
        self._input = input
        self._steps = 0
        self._ms = 0.0
        self._running: int | None = None

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:
        found = dict(_FIELD.findall(plain(line)))
        if torn or found.get("rank", "0") != "0" or found.get("num_ctx_requests", "0") != "0":
            return ()
        # The device time lags one loop; with the host time it differs in one step of many.
        ms = found.get("prev_device_step_time") or found.get("host_step_time")
        if ms is None or not _is_number(ms):
            return ()
        self._steps += 1
        self._ms += float(ms)
        self._running = _whole(found.get("num_scheduled_requests"))
        return self.finish() if self._steps >= MERGE else ()

    def finish(self) -> Iterator[Record]:
        if self._steps:
            yield Window(
                self._input,
                "tensorrt-llm",
                running=self._running,
                round_ms=self._ms / self._steps,
                excluded="step times only",
            )
        self._steps, self._ms = 0, 0.0


def _is_number(text: str) -> bool:
    return text.count(".") <= 1 and text.replace(".", "").isdigit()


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
