"""Prometheus exposition text: one scrape, or several one after the other in one file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from specscope.readers.logs.lines import number
from specscope.readers.records import Record, Scrape

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?[\s|]+(\S+)(?:\s+-?\d+)?[\s|]*$")
"""Also as a row of a pasted query result, with bars between its cells."""

_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
MOST_SERIES = 200_000

_ENGINE = re.compile(r"^(vllm|sglang|llamacpp)[_:]")
_SKIPPED = ("_bucket", "vllm:cache_config_info")


class Exposition:
    """Samples of the engines and of dcgm-exporter; a repeated series starts the next scrape."""

    name = "prometheus"
    gates = (b"_total", b"sglang:", b"DCGM_FI_", b"tgi_request_")
    marks = (
        b"vllm:",
        b"vllm_",
        b"sglang:",
        b"sglang_",
        b"llamacpp:",
        b"llamacpp_",
        b"trtllm_",
        b"tgi_",
        b"specscope_engine_",
        b"lmdeploy:",
        b"DCGM_FI_",
        b"process_start_time_seconds",
    )

    def __init__(self, input: str) -> None:
        self._input = input
        self._samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def feed(self, line: bytes, torn: bool) -> Iterable[Record]:  # noqa: ARG002
        if line.lstrip().startswith(b"#") or len(self._samples) > MOST_SERIES:
            return ()
        parsed = sample(line.decode("utf-8", "replace").strip(" \t\r\n|"))
        if parsed is None:
            return ()
        key, value = parsed
        if key in self._samples:
            done = list(self.finish())
            self._samples[key] = value
            return done
        self._samples[key] = value
        return ()

    def finish(self) -> Iterator[Record]:
        if any(name != "process_start_time_seconds" for name, _ in self._samples):
            yield Scrape(self._input, self._samples)
        self._samples = {}


def sample(text: str) -> tuple[tuple[str, tuple[tuple[str, str], ...]], float] | None:
    """((name, sorted labels), value) of one line; None for anything else, and for nan."""
    match = _SAMPLE.match(text)
    if match is None or match.group(1).endswith(_SKIPPED):
        return None
    value = number(match.group(3))
    if value is None:
        return None
    labels = tuple(sorted(_LABEL.findall(match.group(2) or "")))
    return (series_name(match.group(1)), labels), value


def series_name(name: str) -> str:
    """The engine's own name of a series.

    Ray Serve puts `ray_` in front, and exporters that allow no colon write an underscore.
    """
    return _ENGINE.sub(r"\1:", name.removeprefix("ray_"))
