"""Renders the chart in process and finds things in what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
VARIANTS = sorted((CHART / "ci").glob("*-values.yaml"))

Manifest = dict[str, Any]


def values_of(variant: Path) -> dict[str, Any]:
    return yaml.safe_load(variant.read_text()) or {}


def render(values: dict[str, Any], name: str = "specscope", chart: Path = CHART) -> list[Manifest]:
    """Every object of a release called `name` in the namespace `inference`."""
    with helm_python.Chart.load(chart) as loaded:
        texts = loaded.render(values, name=name, namespace="inference")
    return [
        document
        for path, text in texts.items()
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]


def one(manifests: list[Manifest], kind: str, suffix: str = "") -> Manifest:
    """The only object of a kind whose name ends so."""
    found = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"].endswith(suffix)]
    assert len(found) == 1, [m["metadata"]["name"] for m in found]
    return found[0]


def pod_template(manifest: Manifest) -> Manifest | None:
    match manifest["kind"]:
        case "StatefulSet" | "Deployment":
            return manifest["spec"]["template"]
        case "CronJob":
            return manifest["spec"]["jobTemplate"]["spec"]["template"]
    return None


def pods(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Each workload with its pod template."""
    for manifest in manifests:
        if template := pod_template(manifest):
            yield manifest, template


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def environment(container: Manifest) -> dict[str, Any]:
    """Value by name; None where it comes from elsewhere."""
    return {entry["name"]: entry.get("value") for entry in container.get("env", [])}


def selects(labels: dict[str, str], selector: dict[str, str]) -> bool:
    return selector.items() <= labels.items()
