"""compose.yaml follows the compose specification, and what it names is there."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.resources import files
from urllib.parse import urlsplit
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml
from chart_rendering import ROOT

from specscope.service.access import Access
from specscope.service.tls import Certificates
from specscope.settings import ServiceSettings
from specscope_hook.settings import KNOWN

DEPLOY = ROOT / "deploy"
VARIABLE = re.compile(r"\$\{(\w+)(:-([^}]*))?\}")


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def services(compose):
    return compose["services"]


def filled(text):
    """As compose does it where no variable is set."""
    return VARIABLE.sub(lambda match: match[3], text)


def mounts(service):
    """(source, target, options) of each volume in the short form."""
    for volume in service.get("volumes", []):
        source, target, *options = volume.split(":")
        yield source, target, options


def test_it_follows_the_compose_specification(compose):
    pytest.importorskip("check_jsonschema", reason="carries the compose specification's schema")
    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(vendored.read_text())

    jsonschema.validators.validator_for(schema)(schema).validate(compose)


def test_every_mounted_file_exists_and_every_named_volume_is_declared(compose, services):
    for name, service in services.items():
        for source, _, options in mounts(service):
            if source.startswith("."):
                assert (DEPLOY / source).exists(), f"{name}: {source}"
                assert options == ["ro"], f"{name} may change {source}"
            else:
                assert source in compose["volumes"], f"{name}: {source}"

    used = {source for service in services.values() for source, _, _ in mounts(service)}
    assert set(compose["volumes"]) <= used


def test_dependencies_exist_and_have_the_health_check_that_is_waited_for(services):
    for name, service in services.items():
        wanted = service.get("depends_on", {})
        conditions = wanted if isinstance(wanted, dict) else {key: {} for key in wanted}
        for other, condition in conditions.items():
            assert other in services, f"{name} waits for {other}"
            if condition.get("condition") == "service_healthy":
                assert "healthcheck" in services[other], other


def test_builds_name_targets_of_the_dockerfile(services):
    targets = re.findall(r"^FROM \S+ AS (\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    builds = [service["build"] for service in services.values() if "build" in service]

    for build in builds:
        assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
        assert build["target"] in targets
    assert {build["target"] for build in builds} == {"service", "agent", "engine"}


def test_every_variable_has_a_default_and_none_looks_like_a_setting_of_ours():
    text = (DEPLOY / "compose.yaml").read_text()

    variables = VARIABLE.findall(text)

    assert variables
    for name, default, _ in variables:
        assert default, name
        assert not name.startswith("SPECSCOPE_"), name


def test_every_setting_is_one_that_the_product_knows(services):
    for service in services.values():
        ours = {name for name in service["environment"] if name.startswith("SPECSCOPE_")}
        assert ours <= set(KNOWN)


def test_nobody_changes_policies_through_the_service_unless_a_token_is_set(services):
    text = services["service"]["environment"]["SPECSCOPE_APPLY_TOKEN"]

    assert filled(text) == ""
    assert [n for n, s in services.items() if "SPECSCOPE_APPLY_TOKEN" in s["environment"]] == [
        "service"
    ]


def test_nothing_listens_beyond_this_machine(services):
    published = [port for service in services.values() for port in service.get("ports", [])]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_service_and_sidecar_agree_on_the_port(services):
    host, port = services["agent"]["environment"]["SPECSCOPE_SERVICE"].split(":")

    assert host in services
    assert services[host]["environment"]["SPECSCOPE_LISTEN"] == f"0.0.0.0:{port}"


def test_service_and_sidecar_know_each_other_by_what_is_made_once(services):
    made = set(re.findall(r"[a-z]+\.?[a-z]+", services["certificates"]["command"][0]))
    service, agent = (services[name]["environment"] for name in ("service", "agent"))

    for told, names in (
        (service, ("SPECSCOPE_TLS_CERT", "SPECSCOPE_TLS_KEY", "SPECSCOPE_TOKENS")),
        (agent, ("SPECSCOPE_TLS_CA", "SPECSCOPE_TOKEN_FILE")),
    ):
        for name in names:
            folder, _, file = told[name].rpartition("/")
            assert file in made
            assert folder == "/certificates"
    assert "SPECSCOPE_INSECURE" not in service
    for name in ("service", "agent"):
        assert ("certificates", "/certificates", ["ro"]) in list(mounts(services[name]))


def test_what_is_made_once_lets_the_service_start_and_know_its_sidecar(services, tmp_path):
    (script,) = services["certificates"]["command"]
    script = script.replace("$$", "$").replace("cd /certificates", f"cd {tmp_path}")
    script = script.replace("chown -R 10001:10001 .", "")
    for _ in range(2):  # a second start changes nothing
        subprocess.run(["sh", "-euc", script], check=True, capture_output=True)

    settings = ServiceSettings(
        "chdb:///x", tls_cert=tmp_path / "tls.crt", tls_key=tmp_path / "tls.key"
    )
    Certificates(settings.tls_cert, settings.tls_key).for_http()
    token = (tmp_path / "token").read_text().strip()
    grant = Access(tmp_path / "tokens.toml").grant("publish", f"Bearer {token}")
    assert grant.rights == {"publish"}


def test_the_service_writes_to_the_database_that_clickhouse_makes(services):
    clickhouse = {k: filled(v) for k, v in services["clickhouse"]["environment"].items()}

    for name in ("service", "report"):
        store = urlsplit(filled(services[name]["environment"]["SPECSCOPE_STORE"]))
        assert store.scheme == "clickhouse"
        assert store.hostname == "clickhouse"
        assert store.username == clickhouse["CLICKHOUSE_USER"]
        assert store.password == clickhouse["CLICKHOUSE_PASSWORD"]
        assert store.path == f"/{clickhouse['CLICKHOUSE_DB']}"


def test_engine_and_sidecar_share_the_rings_in_memory_as_one_user(compose, services):
    rings = compose["volumes"]["rings"]["driver_opts"]
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)

    for name in ("engine", "agent"):
        path = services[name]["environment"]["SPECSCOPE_RINGS"]
        assert ("rings", path, []) in list(mounts(services[name]))
        assert "user" not in services[name]
    assert rings["type"] == "tmpfs"
    assert f"uid={user[1]},gid={user[2]}" in rings["o"]


def test_grafana_reads_with_a_user_that_can_only_read(services):
    [source] = yaml.safe_load((DEPLOY / "grafana/datasources/clickhouse.yaml").read_text())[
        "datasources"
    ]
    users = ElementTree.parse(DEPLOY / "clickhouse/grafana-user.xml").getroot().find("users")
    user = users.find(source["jsonData"]["username"])
    variable = user.find("password").get("from_env")

    grants = [query.text for query in user.iter("query")]

    database = services["clickhouse"]["environment"]["CLICKHOUSE_DB"]
    assert grants == [f"GRANT SELECT ON {database}.*"]
    assert source["jsonData"]["defaultDatabase"] == database
    assert source["jsonData"]["host"] in services
    assert source["secureJsonData"]["password"] == f"${variable}"
    for name in ("clickhouse", "grafana"):
        assert services[name]["environment"][variable] == f"${{{variable}:-specscope}}"


def test_grafana_finds_its_provisioning_and_the_dashboards(services):
    targets = {target: DEPLOY / source for source, target, _ in mounts(services["grafana"])}
    [provider] = yaml.safe_load((DEPLOY / "grafana/dashboards/specscope.yaml").read_text())[
        "providers"
    ]

    assert targets[provider["options"]["path"]].resolve() == ROOT / "dashboards" / "rendered"
    assert (targets["/etc/grafana/provisioning/datasources"] / "clickhouse.yaml").is_file()
    assert (targets["/etc/grafana/provisioning/dashboards"] / "specscope.yaml").is_file()
