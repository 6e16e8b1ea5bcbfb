#!/bin/sh
# Unpacks the Python source of the newest release of each engine: newest.sh DIRECTORY
# Some 400 MB are downloaded and nothing is installed. PYTHON names the interpreter whose pip is used.
set -eu
directory=${1:?usage: newest.sh DIRECTORY}
python=${PYTHON:-python3}
for engine in vllm sglang transformers; do
  rm -rf "${directory:?}/$engine"
  wheels=$(mktemp -d)
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --python-version 3.12 --implementation cp --platform manylinux_2_34_x86_64 \
    --platform manylinux_2_31_x86_64 --platform manylinux_2_28_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d "$wheels" "$engine"
  "$python" - "$wheels" "$directory/$engine" <<'PYTHON'
import pathlib, sys, zipfile
(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    names = [n for n in archive.namelist() if n.endswith((".py", ".dist-info/METADATA"))]
    archive.extractall(sys.argv[2], names)
PYTHON
  rm -r "$wheels"
done
