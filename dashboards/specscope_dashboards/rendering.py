"""From dashboards as code to the JSON that Grafana reads, the same text each time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from specscope_dashboards import pays, pipeline

DASHBOARDS: dict[str, Callable[[], Dashboard]] = {
    "pays": pays.dashboard,
    "pipeline": pipeline.dashboard,
}
"""Every dashboard, by the name of its file."""


def plain(dashboard: Dashboard) -> dict[str, Any]:
    """A dashboard as plain values; its panels are numbered in order."""
    text = json.dumps(dashboard.build(), cls=JSONEncoder)
    values: dict[str, Any] = json.loads(text)
    for number, panel in enumerate(values["panels"], start=1):
        panel["id"] = number
    return values


def rendered() -> dict[str, dict[str, Any]]:
    """All of them, as plain values by name."""
    return {name: plain(make()) for name, make in DASHBOARDS.items()}


def write(folder: Path) -> list[Path]:
    """One file each into a folder, which is made. Returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, values in rendered().items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        paths.append(path)
    return paths
