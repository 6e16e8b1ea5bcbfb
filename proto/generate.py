"""Render the protobuf modules of the sidecar from the contract beside this file.

    python proto/generate.py

Needs grpcio-tools. What it renders is committed; a test compares the two.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONTRACT = "specscope/v1/telemetry.proto"
PACKAGE = HERE.parent / "collectors" / "specscope_agent"


def render() -> dict[str, str]:
    """Text of each generated module by its file name, importable from `specscope_agent`.

    Raises CalledProcessError where protoc refuses the contract.
    """
    with tempfile.TemporaryDirectory() as out:
        flags = [f"--{kind}={out}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", *flags, CONTRACT]
        subprocess.run(command, check=True)
        # protoc imports by the folders of the contract, which are not packages of ours.
        return {
            path.name: path.read_text().replace("from specscope.v1 ", "from specscope_agent ")
            for path in sorted(Path(out, CONTRACT).parent.iterdir())
        }


def main() -> None:
    for name, text in render().items():
        (PACKAGE / name).write_text(text)


if __name__ == "__main__":
    main()
