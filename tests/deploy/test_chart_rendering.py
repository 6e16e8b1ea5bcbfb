"""Every supported variant of the chart is valid, and its parts fit each other."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import helm_python
import kubernetes_validate
import pytest
from chart_rendering import (
    CHART,
    ROOT,
    VARIANTS,
    containers,
    environment,
    one,
    pods,
    render,
    selects,
    values_of,
)

from specscope.settings import ServiceSettings
from specscope_hook.settings import KNOWN

CUSTOM = {"ServiceMonitor", "PodMonitor"}  # of the Prometheus operator: not in Kubernetes' schemas


@pytest.fixture(params=VARIANTS, ids=lambda path: path.name.removesuffix("-values.yaml"))
def manifests(request):
    return render(values_of(request.param))


def test_there_are_variants_to_render():
    assert len(VARIANTS) >= 6


def test_the_linter_has_nothing_to_say_beyond_the_missing_icon():
    for variant in VARIANTS:
        report = helm_python.lint(CHART, values_of(variant), strict=True)

        assert report["errors"] == []
        assert [m["error"] for m in report["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize("version", ["1.29", kubernetes_validate.latest_version()])
def test_every_object_is_valid_for_the_oldest_and_the_newest_kubernetes(manifests, version):
    checked = [m for m in manifests if m["kind"] not in CUSTOM]

    for manifest in checked:
        kubernetes_validate.validate(manifest, version, strict=True)

    assert {m["kind"] for m in checked} >= {"StatefulSet", "Service", "ServiceAccount"}


def test_every_mount_has_its_volume_and_every_volume_is_mounted(manifests):
    for workload, pod in pods(manifests):
        volumes = {v["name"] for v in pod["spec"].get("volumes", [])}
        volumes |= {
            claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])
        }

        mounted = {m["name"] for c in containers(pod) for m in c.get("volumeMounts", [])}

        assert mounted == volumes


def test_selectors_find_pods_of_the_release(manifests):
    labels = [pod["metadata"]["labels"] for _, pod in pods(manifests)]

    for manifest in manifests:
        spec = manifest.get("spec", {})
        match manifest["kind"]:
            case "Service":
                selector = spec["selector"]
            case "StatefulSet" | "Deployment":
                selector = spec["selector"]["matchLabels"]
            case "NetworkPolicy":
                selector = spec["podSelector"]["matchLabels"]
            case _:
                continue
        assert sum(selects(each, selector) for each in labels) == 1, manifest["metadata"]["name"]


def test_a_service_and_its_monitor_name_ports_that_the_pods_have(manifests):
    service_pod = next(
        pod for workload, pod in pods(manifests) if workload["kind"] == "StatefulSet"
    )
    ports = {p["name"] for c in containers(service_pod) for p in c.get("ports", [])}
    services = [m for m in manifests if m["kind"] == "Service"]

    for service in services:
        assert {p["targetPort"] for p in service["spec"]["ports"]} == ports
    for monitor in (m for m in manifests if m["kind"] == "ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        found = [s for s in services if selects(s["metadata"]["labels"], selector)]
        assert [s["spec"].get("clusterIP") for s in found] == [None]
        assert {e["port"] for e in monitor["spec"]["endpoints"]} <= {
            p["name"] for s in found for p in s["spec"]["ports"]
        }


def test_names_in_the_release_exist_where_the_chart_makes_them(manifests):
    made = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    accounts = {n for k, n in made if k == "ServiceAccount"}

    for workload, pod in pods(manifests):
        spec = pod["spec"]
        assert spec.get("serviceAccountName", next(iter(accounts))) in accounts
        if workload["kind"] == "StatefulSet":
            assert ("Service", workload["spec"]["serviceName"]) in made
        for volume in spec.get("volumes", []):
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in made
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and claim != "team-reports":
                assert ("PersistentVolumeClaim", claim) in made


def test_no_container_of_ours_may_become_more_than_it_is(manifests):
    for _, pod in pods(manifests):
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        for container in containers(pod):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"]["drop"] == ["ALL"]
            if container["name"] != "serving":
                assert security["readOnlyRootFilesystem"] is True
                assert "memory" in container.get("resources", {}).get("limits", {"memory": 0})


def test_no_service_name_makes_kubernetes_inject_a_setting_of_ours(manifests):
    ours = {
        name
        for _, pod in pods(manifests)
        for container in containers(pod)
        for name in environment(container)
        if name.startswith("SPECSCOPE_")
    }

    for service in (m for m in manifests if m["kind"] == "Service"):
        if service["spec"].get("clusterIP") == "None":
            continue
        prefix = service["metadata"]["name"].upper().replace("-", "_")
        injected = {f"{prefix}_SERVICE_HOST", f"{prefix}_SERVICE_PORT", f"{prefix}_PORT"}
        assert not injected & ours


def test_every_setting_is_one_that_the_product_knows(manifests):
    for _, pod in pods(manifests):
        for container in containers(pod):
            names = {n for n in environment(container) if n.startswith("SPECSCOPE_")}
            assert names <= set(KNOWN)


def test_images_are_targets_of_the_dockerfile(manifests):
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE))

    for _, pod in pods(manifests):
        for container in containers(pod):
            repository, _, tag = container["image"].rpartition(":")
            assert tag
            if "vllm" not in repository:
                assert repository.rsplit("/", 1)[-1] in targets


def test_an_external_store_comes_from_a_secret_and_needs_no_volume():
    manifests = render(values_of(CHART / "ci" / "external-clickhouse-values.yaml"))

    stateful = one(manifests, "StatefulSet")

    assert stateful["spec"]["replicas"] == 3
    assert "volumeClaimTemplates" not in stateful["spec"]
    for _, pod in pods(manifests):
        for container in containers(pod):
            store = next(e for e in container["env"] if e["name"] == "SPECSCOPE_STORE")
            assert store["valueFrom"]["secretKeyRef"] == {"name": "specscope-store", "key": "dsn"}


def test_only_the_service_gets_the_token_that_changes_policies_and_only_where_a_secret_is_named():
    named = render(values_of(CHART / "ci" / "applied-policies-values.yaml"))

    entries = [
        (container["name"], entry)
        for _, pod in pods(named)
        for container in containers(pod)
        for entry in container["env"]
        if entry["name"] == "SPECSCOPE_APPLY_TOKEN"
    ]

    reference = {"secretKeyRef": {"name": "specscope-apply", "key": "token"}}
    assert entries == [("service", {"name": "SPECSCOPE_APPLY_TOKEN", "valueFrom": reference})]
    (_, pod), *_ = pods(render({}))
    assert "SPECSCOPE_APPLY_TOKEN" not in environment(containers(pod)[0])


def test_the_report_reads_an_embedded_store_through_the_service():
    manifests = render({})

    cron = one(manifests, "CronJob")
    report = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    service = one(manifests, "Service", "specscope")

    port = next(p["port"] for p in service["spec"]["ports"] if p["name"] == "http")
    store = urlsplit(environment(report)["SPECSCOPE_STORE"])
    assert (store.scheme, store.hostname, store.port) == (
        "https", service["metadata"]["name"], port
    )  # fmt: skip
    assert store.password == "$(READ_TOKEN)"
    assert dict(parse_qsl(store.query))["ca"] in files_of(report, cron, "specscope-report")
    assert cron["spec"]["concurrencyPolicy"] == "Forbid"
    assert "specscope report --since '7d' --out" in report["args"][0]


def test_the_report_is_sent_to_a_webhook_whose_address_is_a_secret():
    silent, sends = render({}), render({"report": {"send": "slack", "link": "https://x/report"}})

    def job(manifests):
        cron = one(manifests, "CronJob")
        return cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]

    def leaves(manifests):
        return one(manifests, "NetworkPolicy", "specscope-report")["spec"]["egress"]

    assert "SPECSCOPE_REPORT_SEND" not in environment(job(silent))
    (entry,) = [e for e in job(sends)["env"] if e["name"] == "SPECSCOPE_REPORT_SEND"]
    assert entry["valueFrom"] == {"secretKeyRef": {"name": "slack", "key": "url"}}
    assert "--link 'https://x/report' ||" in job(sends)["args"][0]
    webhook = {"ports": [{"protocol": "TCP", "port": 443}]}
    assert webhook in leaves(sends)
    assert webhook not in leaves(silent)


def test_only_sidecars_may_stream_and_only_the_report_may_read():
    manifests = render(values_of(CHART / "ci" / "example-serving-values.yaml"))

    stream, read = one(manifests, "NetworkPolicy", "specscope")["spec"]["ingress"]
    labels = {workload["kind"]: pod["metadata"]["labels"] for workload, pod in pods(manifests)}

    streaming = stream["from"][0]["podSelector"]["matchLabels"]
    reading = read["from"][0]["podSelector"]["matchLabels"]
    assert [p["port"] for p in stream["ports"]] == ["grpc"]
    assert [p["port"] for p in read["ports"]] == ["http"]
    assert [k for k, v in labels.items() if selects(v, streaming)] == ["Deployment"]
    assert [k for k, v in labels.items() if selects(v, reading)] == ["CronJob"]


SECRETS = {
    "specscope-tls": ("tls.crt", "tls.key", "ca.crt"),
    "specscope-tokens": ("tokens.toml",),
    "specscope-sidecar": ("token", "ca.crt", "tls.crt", "tls.key"),
    "specscope-report": ("token", "ca.crt", "tls.crt", "tls.key"),
}


def files_of(container, workload, secret):
    """Paths of a secret's keys in a container."""
    template = workload["spec"].get("jobTemplate", workload)["spec"]["template"]
    volumes = {
        v["name"] for v in template["spec"]["volumes"]
        if v.get("secret", {}).get("secretName") == secret
    }  # fmt: skip
    return {
        f"{mount['mountPath']}/{key}"
        for mount in container["volumeMounts"]
        if mount["name"] in volumes and mount["readOnly"]
        for key in SECRETS[secret]
    }


@pytest.mark.parametrize("mutual", [False, True])
def test_service_and_sidecars_know_each_other_by_secrets(mutual):
    manifests = render({"exampleServing": {"enabled": True}, "security": {"mutual": mutual}})
    stateful, example = one(manifests, "StatefulSet"), one(manifests, "Deployment", "-example")
    service = stateful["spec"]["template"]["spec"]["containers"][0]
    agent = example["spec"]["template"]["spec"]["initContainers"][-1]

    told, known = environment(service), environment(agent)

    served = files_of(service, stateful, "specscope-tls")
    names = {"SPECSCOPE_TLS_CERT", "SPECSCOPE_TLS_KEY"}
    names |= {"SPECSCOPE_TLS_CLIENT_CA"} if mutual else set()
    assert {told[name] for name in names} <= served
    assert told["SPECSCOPE_TOKENS"] in files_of(service, stateful, "specscope-tokens")
    assert ("SPECSCOPE_TLS_CLIENT_CA" in told) is mutual
    shown = {"SPECSCOPE_TLS_CA", "SPECSCOPE_TOKEN_FILE"}
    shown |= {"SPECSCOPE_TLS_CERT", "SPECSCOPE_TLS_KEY"} if mutual else set()
    assert {known[name] for name in shown} <= files_of(agent, example, "specscope-sidecar")
    assert "SPECSCOPE_INSECURE" not in told


def test_what_the_chart_tells_the_service_lets_it_start(manifests):
    stateful = one(manifests, "StatefulSet")
    told = environment(stateful["spec"]["template"]["spec"]["containers"][0])
    known = {name: value for name, value in told.items() if name in KNOWN and value}

    settings = ServiceSettings.from_env({"SPECSCOPE_STORE": "chdb:///data", **known})

    assert settings.insecure is (settings.tokens is None)


def test_probes_ask_in_the_clear_where_nothing_else_is_shown(manifests):
    service = one(manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in service["ports"]}

    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert service[probe]["httpGet"] == {"path": "/health", "port": "metrics"}
    assert environment(service)["SPECSCOPE_METRICS_LISTEN"] == f"0.0.0.0:{ports['metrics']}"


def test_a_release_name_does_not_appear_twice_and_a_long_one_is_cut():
    names = {m["metadata"]["name"] for m in render({}, name="specscope")}
    long = {m["metadata"]["name"] for m in render({}, name="a" * 53)}

    assert "specscope" in names
    assert not any("specscope-specscope" in name for name in names)
    assert max(map(len, long)) <= 63
