#!/bin/sh
# All that only a GPU can tell, in one go of less than eight minutes: measures, writes JSON, judges.
#   sh bench/gpu.sh [OUT] [PYTHON]     OUT: folder for the results, gpu-results if not given
# PYTHON (python3) is used as it is where it has what the engine needs, so no network is needed;
# else an environment is made and filled by pip. SMALL=1 runs it on a CPU, to see that it works.
# Ends with one line GPU: PASS (0), GPU: FAIL (1) or GPU: NONE (2); SMALL: PASS says nothing of GPUs.
set -eu
out=${1:-gpu-results}
python=${2:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
if ! "$python" -c 'import numpy, safetensors, tokenizers, torch' 2> "$out/errors.txt"; then
    venv=${VENV:-$root/.venv-gpu}
    # A torch that the machine brings fits its driver; it is used where there is one.
    [ -x "$venv/bin/python" ] || "$python" -m venv --system-site-packages "$venv"
    python=$venv/bin/python
    "$python" -m pip install --quiet --disable-pip-version-check -e "$root[engine,agent]"
fi
PYTHONPATH=$root:$root/collectors${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH PYTHONUNBUFFERED=1
if [ -n "${SMALL:-}" ]; then
    set -- --small
    what=SMALL device=cpu tokens=8 batches=1
else
    set --
    what=GPU device=cuda tokens=64 batches="1 8 32"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv > "$out/device.csv" \
        2>> "$out/errors.txt" && cat "$out/device.csv" || echo "nvidia-smi says nothing"
fi

# run SECONDS NAME COMMAND...: shows what it prints, keeps it in OUT/NAME.txt, answers its code.
run() {
    seconds=$1 name=$2
    shift 2
    code=0
    timeout -k 10 "$seconds" "$@" > "$out/$name.txt" 2>> "$out/errors.txt" || code=$?
    cat "$out/$name.txt"
    [ "$code" -ne 124 ] || echo "FAIL $name: not done after $seconds s"
    return "$code"
}

checks=0
run 360 checks "$python" "$root/bench/engine_gpu.py" "$@" --out "$out/checks.json" || checks=$?
if [ "$checks" -eq 2 ]; then
    echo "GPU: NONE"
    exit 2
fi
bench=0
run 100 bench "$python" -m specscope.cli engine bench --device "$device" --batch $batches \
    --k 4 --label sql --tokens "$tokens" --repeats 1 --out "$out/bench.json" || bench=$?
if [ "$checks" -eq 0 ] && [ "$bench" -eq 0 ]; then
    echo "PASS bench: $out/bench.json"
    echo "$what: PASS ($out/checks.json)"
    exit 0
fi
[ "$bench" -eq 0 ] || echo "FAIL bench: code $bench"
tail -n 8 "$out/errors.txt" >&2
echo "$what: FAIL (checks $checks, bench $bench; $out/checks.json, $out/errors.txt)"
exit 1
