"""`nvidia-smi --query-gpu=... --format=csv`: fields averaged over the samples, per device."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from specscope.readers.logs.lines import number
from specscope.readers.records import DeviceSample, Finding, Record
from specscope.readers.source import Source
from specscope.readers.tables.csv_file import header, name_of, rows

_KNOWN = ("utilization.", "memory.", "temperature.", "power.", "clocks.", "pstate", "fan.speed")
_IDENTITY = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "index", "name", "gpu_name")
_UNITS = {"%": "%", "MiB": "MiB", "W": "W", "MHz": "MHz"}


class NvidiaSmi:
    """A table with one row per device and sample."""

    format = "nvidia-smi-csv"

    def sniff(self, head: bytes) -> float:
        """0.9 if the columns are query fields."""
        columns = header(head)
        found = sum(column.lower().startswith(_KNOWN) for column in columns)
        return 0.9 if found and "," in head[:4096].decode("latin-1") else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """One mean per device and field; unsupported fields are NULL with the reason."""
        sums: dict[tuple[str, str], list[float]] = defaultdict(list)
        reasons: dict[tuple[str, str], str] = {}
        times: list[datetime] = []
        counts: dict[str, int] = defaultdict(int)
        for row in rows(source.stream):
            device = next((row[c] for c in row if c.lower() in _IDENTITY[:4]), "")
            counts[device] += 1
            for column, text in row.items():
                if column.lower() == "timestamp":
                    moment = _moment(text)
                    times += [moment] if moment and len(times) < 100_000 else []
                elif column.lower() not in _IDENTITY:
                    value = number(text)
                    key = (device, column)
                    if value is None:
                        reasons[key] = text.strip("[] ") or "empty"
                        sums.setdefault(key, [])
                    else:
                        sums[key].append(value)
        for (device, column), values in sums.items():
            reason = None
            if not values:
                reason = f"unsupported: {reasons[device, column]}"
                yield Finding(
                    "UNSUPPORTED_FIELD",
                    f"{column} is {reasons[device, column]} in all {counts[device]} samples: "
                    "unknown, "
                    "never 0"
                    + (
                        "; on unified memory read system memory and mark its source 'unified'"
                        if "memory" in column.lower()
                        else ""
                    ),
                    {"field": column, "samples": counts[device]},
                )
            mean = sum(values) / len(values) if values else None
            yield DeviceSample(
                source.name,
                device or None,
                None,
                _field(column),
                mean,
                _unit(column),
                reason,
                counts[device],
            )
        if times:
            gaps = [(b - a).total_seconds() for a, b in itertools.pairwise(times)]
            yield Finding(
                "LOCAL_TIME",
                f"{len(times)} samples in local time without a zone",
                {
                    "samples": len(times),
                    "shortest_gap_s": round(min(gaps), 3) if gaps else None,
                    "longest_gap_s": round(max(gaps), 3) if gaps else None,
                },
            )


def _moment(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y/%m/%d %H:%M:%S.%f")
    except ValueError:
        return None


def _field(column: str) -> str:
    return column.partition(" [")[0].strip()


def _unit(column: str) -> str | None:
    inside = column.partition("[")[2].partition("]")[0]
    if inside:
        return _UNITS.get(inside, inside)
    return "C" if name_of(column).startswith("temperature") else None
