#!/bin/sh
# All that only a GPU can tell, in one go of a few minutes: installs, measures, writes JSON.
#   sh bench/gpu.sh [OUT] [PYTHON]     OUT: folder for the results, gpu-results if not given
# SMALL=1 runs it on a CPU, to see that it works. Exit code 1 if a check fails.
set -eu
out=${1:-gpu-results}
python=${2:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${VENV:-$root/.venv-gpu}
mkdir -p "$out"
if [ ! -x "$venv/bin/python" ]; then
    # A torch that the machine brings fits its driver; it is used where there is one.
    "$python" -m venv --system-site-packages "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e "$root[engine,agent]"
small=${SMALL:+--small}
if [ -z "$small" ]; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$out/device.csv"
fi
code=0
"$venv/bin/python" "$root/bench/engine_gpu.py" $small --out "$out/checks.json" \
    > "$out/checks.txt" 2> "$out/errors.txt" || code=$?
cat "$out/checks.txt"
tail -n 5 "$out/errors.txt" >&2
device=cuda
tokens=64
if [ -n "$small" ]; then device=cpu; tokens=8; fi
"$venv/bin/specscope" engine bench --device $device --batch 1 8 32 --k 2 4 --label sql python \
    --tokens $tokens --out "$out/bench.json" | tee "$out/bench.txt" || code=1
exit $code
