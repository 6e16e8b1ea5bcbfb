"""The generated protobuf modules are what protoc renders from the contract."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

import specscope_agent

PROTO = Path(__file__).resolve().parents[2] / "proto" / "generate.py"
PACKAGE = Path(specscope_agent.__file__).parent
OPTIONAL = "optional-dependencies"


def test_the_committed_protobuf_modules_equal_what_protoc_renders():
    rendered = runpy.run_path(str(PROTO))["render"]()

    committed = {path.name: path.read_text() for path in PACKAGE.glob("telemetry_pb2*.py*")}
    assert committed == rendered
    assert len(rendered) == 3


@pytest.mark.parametrize("extra", ["agent", "server"])
def test_no_older_runtime_than_the_generated_modules_need_can_be_installed(extra):
    project = tomllib.loads((PROTO.parents[1] / "pyproject.toml").read_text())
    least = dict(re.findall(r"(\S+?)>=([\d.]+)", " ".join(project["project"][OPTIONAL][extra])))

    needed = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", committed("telemetry_pb2_grpc.py"))
    assert least["grpcio"] == needed[1]
    needed = re.search(r"Protobuf Python Version: ([\d.]+)", committed("telemetry_pb2.py"))
    assert least["protobuf"] == needed[1]


def committed(name: str) -> str:
    return (PACKAGE / name).read_text()
