#!/bin/sh
# Fetches SGLang's source for tests/sglang: environment.sh DIRECTORY
# One wheel of 39 MB, unpacked and never installed: SGLang itself needs a GPU.
set -eu
directory=${1:?usage: environment.sh DIRECTORY}
version=0.5.23
if [ -e "$directory/.complete" ]; then exit 0; fi
python=${PYTHON:-python3}
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --python-version 3.11 --implementation cp --platform manylinux_2_34_x86_64 \
  -d "$wheels" "sglang==$version"
mkdir -p "$directory"
"$python" -m zipfile -e "$wheels"/sglang-*.whl "$directory"
touch "$directory/.complete"
