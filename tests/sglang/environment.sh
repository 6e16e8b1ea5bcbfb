#!/bin/sh
# Fetches SGLang's source for tests/sglang: environment.sh DIRECTORY [dependencies]
# One wheel of 39 MB, unpacked and never installed: SGLang itself needs a GPU.
# With `dependencies`, also what its own requests and result processor import (1.2 GB, most of
# it triton), into DIRECTORY-dependencies; run it with the interpreter that runs the tests.
set -eu
directory=${1:?usage: environment.sh DIRECTORY}
version=0.5.23
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
if [ "${2:-}" = dependencies ] && [ ! -e "$directory-dependencies/.complete" ]; then
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --target "$directory-dependencies" -r "$here/dependencies.txt"
  touch "$directory-dependencies/.complete"
fi
if [ -e "$directory/.complete" ]; then exit 0; fi
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --python-version 3.11 --implementation cp --platform manylinux_2_34_x86_64 \
  -d "$wheels" "sglang==$version"
mkdir -p "$directory"
"$python" -m zipfile -e "$wheels"/sglang-*.whl "$directory"
touch "$directory/.complete"
