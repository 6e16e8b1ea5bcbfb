"""Grafana gets the dashboards that are committed, however it is deployed."""

from __future__ import annotations

import yaml
from chart_rendering import CHART, ROOT, one, render, values_of

RENDERED = ROOT / "dashboards" / "rendered"


def test_the_config_map_holds_the_rendered_dashboards():
    manifests = render(values_of(CHART / "ci" / "external-clickhouse-values.yaml"))

    dashboards = one(manifests, "ConfigMap", "-dashboards")

    rendered = {path.name: path.read_text() for path in RENDERED.glob("*.json")}
    assert rendered
    assert dashboards["data"] == rendered
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_config_map_fits_into_what_kubernetes_stores():
    manifests = render(values_of(CHART / "ci" / "external-clickhouse-values.yaml"))

    dashboards = one(manifests, "ConfigMap", "-dashboards")

    assert len(yaml.safe_dump(dashboards)) < 1 << 20


def test_the_home_dashboard_of_the_compose_file_is_one_of_them():
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]

    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]

    folder, _, name = home.rpartition("/")
    assert (RENDERED / name).is_file()
    assert f"../dashboards/rendered:{folder}:ro" in services["grafana"]["volumes"]
