"""Prometheus's JSON answers to queries: instant vectors and ranges of counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specscope.readers.logs.lines import number
from specscope.readers.records import Record, Scrape
from specscope.readers.results.json_file import dicts, documents, looks_like_json
from specscope.readers.scrapes.prometheus import series_name
from specscope.readers.source import Source

Key = tuple[str, tuple[tuple[str, str], ...]]


class PrometheusJson:
    """One scrape for a vector; the first and the last values of a range as two."""

    format = "prometheus-json"

    def sniff(self, head: bytes) -> float:
        """0.8 for JSON with a result type and metric names."""
        found = b'"resultType"' in head and b'"__name__"' in head
        return 0.8 if looks_like_json(head) and found else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """The scrapes that the series of all results add up to."""
        first: dict[Key, float] = {}
        last: dict[Key, float] = {}
        times: list[float] = []
        for document in documents(source.stream):
            for found in dicts(document):
                metric = found.get("metric")
                if not isinstance(metric, dict) or not isinstance(metric.get("__name__"), str):
                    continue
                values = _values(found)
                if values:
                    key = _key(metric)
                    first[key], last[key] = values[0][1], values[-1][1]
                    times += [values[0][0], values[-1][0]]
        if not last:
            return
        if first != last:
            yield Scrape(source.name, first, min(times))
            yield Scrape(source.name, last, max(times))
        else:
            yield Scrape(source.name, last)


def _key(metric: dict[str, Any]) -> Key:
    labels = ((k, v) for k, v in metric.items() if k != "__name__" and isinstance(v, str))
    return series_name(str(metric["__name__"])), tuple(sorted(labels))


def _values(found: dict[str, Any]) -> list[tuple[float, float]]:
    pairs = found.get("values") or [found.get("value")]
    read = []
    for pair in pairs if isinstance(pairs, list) else []:
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int | float):
            value = number(str(pair[1]))
            if value is not None:
                read.append((float(pair[0]), value))
    return read
