"""Every command line that is deployed is one that `specscope` understands."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import yaml
from chart_rendering import ROOT, VARIANTS, containers, pods, render, values_of

from specscope.cli import VERBS, build_parser


def in_the_dockerfile():
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    return [json.loads(line) for line in re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)]


def in_the_compose_file():
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    ours = [service for service in services.values() if "entrypoint" not in service]
    return [service["command"] for service in ours if "command" in service]


def in_the_chart():
    for variant in VARIANTS:
        for _, pod in pods(render(values_of(variant))):
            for container in containers(pod):
                ours = container["image"].startswith(("specscope/", "registry.example.org/"))
                if container.get("command", [])[:1] == ["/bin/sh"]:
                    line = container["args"][0].partition(" || ")[0]  # 3 is done, too
                    program, *words = shlex.split(line)
                    assert program == "specscope"
                    yield words
                elif ours and "command" not in container:
                    yield container["args"]


COMMANDS = sorted(
    {tuple(c) for c in (*in_the_dockerfile(), *in_the_compose_file(), *in_the_chart())}
)


def test_the_deployed_verbs_are_these():
    assert {command[0] for command in COMMANDS} == {"agent", "engine", "report", "serve"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_it_is_understood(command):
    args = build_parser(command[0]).parse_args(command)

    assert args.verb in VERBS
    assert callable(args.run)
