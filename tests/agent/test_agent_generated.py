"""The generated protobuf modules are what protoc renders from the contract."""

from __future__ import annotations

import runpy
from pathlib import Path

import specscope_agent

PROTO = Path(__file__).resolve().parents[2] / "proto" / "generate.py"
PACKAGE = Path(specscope_agent.__file__).parent


def test_the_committed_protobuf_modules_equal_what_protoc_renders():
    rendered = runpy.run_path(str(PROTO))["render"]()

    committed = {path.name: path.read_text() for path in PACKAGE.glob("telemetry_pb2*.py*")}
    assert committed == rendered
    assert len(rendered) == 3
