"""The serving pod: a native sidecar and the engine on one memory volume."""

from __future__ import annotations

import shutil

import pytest
import yaml
from chart_rendering import (
    CHART,
    ROOT,
    containers,
    environment,
    one,
    pod_template,
    render,
    values_of,
)

MEBIBYTE = 1 << 20


@pytest.fixture(params=["example-serving", "vllm-gpu"])
def pod(request):
    manifests = render(values_of(CHART / "ci" / f"{request.param}-values.yaml"))
    return pod_template(one(manifests, "Deployment", "-example"))


def named(pod, name):
    return next(c for c in containers(pod) if c["name"] == name)


def volume(pod, name):
    return next(v for v in pod["spec"]["volumes"] if v["name"] == name)


def test_the_sidecar_is_native_so_it_outlives_the_engine(pod):
    init = pod["spec"]["initContainers"]

    assert init[-1]["name"] == "specscope-agent"
    assert init[-1]["restartPolicy"] == "Always"
    assert "startupProbe" not in init[-1]
    assert all("restartPolicy" not in container for container in init[:-1])


def test_engine_and_sidecar_share_the_rings_in_memory(pod):
    engine, agent = named(pod, "serving"), named(pod, "specscope-agent")

    mounts = [
        mount
        for container in (engine, agent)
        for mount in container["volumeMounts"]
        if mount["name"] == "specscope-rings"
    ]

    assert [m["mountPath"] for m in mounts] == [environment(engine)["SPECSCOPE_RINGS"]] * 2
    assert environment(agent)["SPECSCOPE_RINGS"] == environment(engine)["SPECSCOPE_RINGS"]
    assert not any(m.get("readOnly") for m in mounts)
    assert volume(pod, "specscope-rings")["emptyDir"]["medium"] == "Memory"


def test_the_memory_volume_holds_the_old_ring_and_the_new_one_of_each_process():
    values = {
        "exampleServing": {"enabled": True},
        "hook": {"ring": {"mebibytes": 100, "processes": 3}},
    }

    pod = pod_template(one(render(values), "Deployment", "-example"))

    assert environment(named(pod, "serving"))["SPECSCOPE_RING_BYTES"] == str(100 * MEBIBYTE)
    assert volume(pod, "specscope-rings")["emptyDir"]["sizeLimit"] == "608Mi"


def test_both_containers_run_as_one_user(pod):
    pod_user = pod["spec"]["securityContext"]["runAsUser"]

    users = {
        container["securityContext"].get("runAsUser", pod_user) for container in containers(pod)
    }

    assert users == {pod_user}


def test_the_sidecar_streams_to_the_service_of_the_release():
    manifests = render({"exampleServing": {"enabled": True}, "service": {"grpcPort": 7171}})

    agent = named(pod_template(one(manifests, "Deployment", "-example")), "specscope-agent")

    service = one(manifests, "Service", "specscope")["metadata"]["name"]
    assert environment(agent)["SPECSCOPE_SERVICE"] == f"{service}.inference:7171"


def test_servers_without_a_hook_are_named_to_the_sidecar():
    values = values_of(CHART / "ci" / "example-serving-values.yaml")
    sources = ["vllm.metrics:http://localhost:8000/metrics", "b=llama.cpp:/logs/llama.log"]
    values.setdefault("sidecar", {})["sources"] = sources

    pod = pod_template(one(render(values), "Deployment", "-example"))

    assert environment(named(pod, "specscope-agent"))["SPECSCOPE_SOURCES"] == ",".join(sources)


def test_the_spool_ends_before_the_node_evicts_the_pod(pod):
    limit = volume(pod, "specscope-spool")["emptyDir"]["sizeLimit"]

    spool = int(environment(named(pod, "specscope-agent"))["SPECSCOPE_SPOOL_BYTES"])

    assert int(limit.removesuffix("Mi")) * MEBIBYTE > spool


def test_a_foreign_image_gets_the_hook_by_a_volume_and_our_own_does_not():
    foreign = pod_template(
        one(render(values_of(CHART / "ci" / "vllm-gpu-values.yaml")), "Deployment", "-example")
    )
    own = pod_template(one(render({"exampleServing": {"enabled": True}}), "Deployment", "-example"))

    path = environment(named(foreign, "serving"))["PYTHONPATH"]

    mounts = {m["name"]: m["mountPath"] for m in named(foreign, "serving")["volumeMounts"]}
    assert mounts["specscope-hook"] == path
    assert named(foreign, "specscope-hook")["command"][-1] == "/hook"
    assert "specscope-hook" not in {c["name"] for c in containers(own)}
    assert "specscope-hook" not in {v["name"] for v in own["spec"]["volumes"]}


def test_class_rules_reach_the_hook_as_a_file():
    values = {"exampleServing": {"enabled": True}, "hook": {"classRules": "first\nsecond"}}

    manifests = render(values)

    engine = named(pod_template(one(manifests, "Deployment", "-example")), "serving")
    data = one(manifests, "ConfigMap", "-classes")["data"]
    [(name, text)] = data.items()
    mounts = {m["name"]: m["mountPath"] for m in engine["volumeMounts"]}
    assert environment(engine)["SPECSCOPE_CLASSES"] == f"{mounts['specscope-classes']}/{name}"
    assert text.splitlines() == ["first", "second"]


def test_another_chart_can_take_the_pieces_as_the_docs_show(tmp_path):
    parent = tmp_path / "parent"
    (parent / "templates").mkdir(parents=True)
    shutil.copytree(CHART, parent / "charts" / "specscope")
    (parent / "Chart.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v2",
                "name": "parent",
                "version": "0.1.0",
                "dependencies": [{"name": "specscope", "version": "0.1.0"}],
            }
        )
    )
    (parent / "values.yaml").write_text("specscope:\n  hook:\n    ringsPath: /run/elsewhere\n")
    (parent / "templates" / "serving.yaml").write_text(documented_template())

    manifests = render({}, name="mine", chart=parent)

    serving = pod_template(one(manifests, "Deployment", "mine-llm"))
    agent = named(serving, "specscope-agent")
    assert environment(agent)["SPECSCOPE_SERVICE"] == "mine-specscope.inference:7070"
    assert environment(named(serving, "llm"))["SPECSCOPE_RINGS"] == "/run/elsewhere"
    assert environment(named(serving, "llm"))["PYTHONPATH"] == "/opt/specscope-hook"
    assert serving["metadata"]["labels"]["specscope.io/sidecar"] == "true"
    mounted = {m["name"] for c in containers(serving) for m in c["volumeMounts"]}
    assert mounted == {v["name"] for v in serving["spec"]["volumes"]}


def documented_template() -> str:
    """The template that docs/deploy.md shows, with what it leaves to the reader."""
    text = (ROOT / "docs" / "deploy.md").read_text()
    body = text.split("# templates/serving.yaml\n")[1].split("```")[0]
    return HEAD + body.replace("- name: llm", "- name: llm\n          image: llm:1")


HEAD = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-llm
spec:
  selector:
    matchLabels: {app: llm}
"""
