"""Run the demonstration: service, sidecar and engine as processes, then the verdicts.

The parent starts them, shows the progress, and stops them in the order of the data flow. Only then
it opens the store, which has one owner at a time.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specscope.demo.job import Job
from specscope.demo.notes import notes
from specscope.demo.plan import LOADS, Size, arm_name
from specscope.demo.processes import Processes, free_port
from specscope.demo.progress import Progress
from specscope.doctor.leftovers import held, rings_folder, sweep
from specscope.errors import DemoError
from specscope.evaluate.experiment.segments import load_bucket
from specscope.policy.stored import checked, write_policy
from specscope.report.collect import collect
from specscope.report.model import Report
from specscope.service.assessor import Assessor
from specscope.store.connection import Store
from specscope.store.migrate import migrate
from specscope.store.roll import roll

POLICY = 1
START_SECONDS = 180.0  # a busy machine takes its time; who waits sees the stage
SHIP_SECONDS = 180.0
ENDINGS = (signal.SIGTERM, signal.SIGHUP)  # what ends a process from outside, and may be caught


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of a demonstration: one folder, except for the rings."""

    out: Path

    @property
    def store(self) -> Path:
        return self.out / "store"

    @property
    def spool(self) -> Path:
        return self.out / "spool"

    @property
    def logs(self) -> Path:
        return self.out / "logs"

    @property
    def rings(self) -> Path:
        return rings_folder(self.out)


def run(out: Path, size: Size, progress: Progress, *, seed: int | None = None) -> Report:
    """Run the whole demonstration, from empty folders to a report.

    Raises DemoError if a part ends early, StoreBusy if another demonstration uses `out`.
    """
    with _tidy_ending():
        return _run(Folders(out), size, progress, seed)


def _run(folders: Folders, size: Size, progress: Progress, seed: int | None) -> Report:
    for folder in (folders.spool, folders.logs):
        folder.mkdir(parents=True, exist_ok=True)
    job = Job(POLICY, secrets.randbits(31) if seed is None else seed, size, _spare_core())
    for folder in sweep():
        progress.stage(f"removed {folder}, which a killed demonstration left in memory")
    with held(folders.rings):
        try:
            return _measure(folders, job, progress)
        finally:
            progress.end_line()


def _measure(folders: Folders, job: Job, progress: Progress) -> Report:
    began_at = _prepare_store(folders, job)
    with Processes(folders.logs) as processes:
        environment = _environment(folders)
        progress.stage("starting service, sidecar and engine")
        processes.start("service", _specscope("serve"), environment)
        _wait_until_healthy(processes, environment["SPECSCOPE_HTTP"])
        processes.start("agent", _specscope("agent"), environment)
        _run_engine(processes, environment, job, progress)
        progress.stage("shipping the last batches")
        _wait_until_shipped(processes, folders)
        processes.stop("agent")
        _check_spool(folders)
        processes.stop("service")
    # All of it has arrived; a later run would take what its rings left behind for a loss.
    shutil.rmtree(folders.spool)
    progress.stage("rolling up and deciding")
    with Store.open(_dsn(folders)) as store:
        roll(store, everything=True)
        Assessor(store).tick()  # dashboards show verdicts; the service ended before its turn
        return report_of(store, began_at)


def report_of(store: Store, since: int = 0) -> Report:
    """The report on a demonstration's store, in which each load has the demonstration's name.

    since: ns since 1970, from which rows belong to the demonstration.
    """
    return collect(
        store,
        title="Does speculative decoding pay here?",
        since=since,
        load_names={load_bucket(load.requests): load.name for load in LOADS},
        notes=notes(),
    )


@contextmanager
def _tidy_ending() -> Iterator[None]:
    """What ends this process from outside ends it as Ctrl-C does: rings take memory."""
    main = threading.current_thread() is threading.main_thread()
    heeded = [one for one in ENDINGS if main and signal.getsignal(one) != signal.SIG_IGN]
    before = {one: signal.signal(one, signal.default_int_handler) for one in heeded}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _prepare_store(folders: Folders, job: Job) -> int:
    """Make the store and write down the policy before any block of it runs.

    Returns the time, ns since 1970, from which rows belong to this demonstration.
    """
    now = time.time_ns()
    with Store.open(_dsn(folders)) as store:
        migrate(store)
        write_policy(
            store, _policy(job), "cohorts of one class, from an idle engine to an idle engine", now
        )
    return now


def _policy(job: Job) -> dict[str, Any]:
    return checked(
        {
            "policy": job.policy,
            "kind": "cohort",
            "seed": job.seed,
            "arms": [{"name": arm_name(k), "k": k} for k in job.size.arms],
            "block_ms": None,
            "burn_in_ms": None,
            "first_pair": 1,
            "share": 1.0,
            "table": [],
            "default_k": 0,
        }
    )


def _run_engine(
    processes: Processes, environment: dict[str, str], job: Job, progress: Progress
) -> None:
    engine = processes.start(
        "engine",
        [sys.executable, "-m", "specscope.demo.driver", job.to_json()],
        {**environment, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        finite=True,
    )
    done = False
    for event in _events(engine):
        processes.check()
        progress.event(event)
        done = event["event"] == "done"
    if not done:
        engine.wait()
        processes.check()
        raise DemoError("engine ended before it had run its blocks")
    processes.stop("engine")


def _wait_until_shipped(processes: Processes, folders: Folders) -> None:
    """The sidecar removes a ring that has ended once the service has all of it."""
    deadline = time.monotonic() + SHIP_SECONDS
    while any(folders.rings.glob("*.ring")) and time.monotonic() < deadline:
        processes.check()
        time.sleep(0.1)


def _check_spool(folders: Folders) -> None:
    """Raise DemoError if the sidecar has left batches behind: the evidence is not whole."""
    left = sum(1 for _ in folders.spool.glob("*/*.batch"))
    if left:
        raise DemoError(f"{left} batches did not reach the service; they wait in {folders.spool}")


def _events(engine: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert engine.stdout is not None
    for line in engine.stdout:
        yield json.loads(line)


def _wait_until_healthy(processes: Processes, http: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        processes.check()
        try:
            with urllib.request.urlopen(f"http://{http}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise DemoError(f"the service did not start within {START_SECONDS:.0f} s")


def _environment(folders: Folders) -> dict[str, str]:
    """Settings of all three; whatever the caller's shell says of specscope is left out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPECSCOPE_")}
    listen = f"127.0.0.1:{free_port()}"
    return kept | {
        "SPECSCOPE_RINGS": str(folders.rings),
        "SPECSCOPE_REPLICA": "demo",
        "SPECSCOPE_STORE": _dsn(folders),
        "SPECSCOPE_LISTEN": listen,
        "SPECSCOPE_HTTP": f"127.0.0.1:{free_port()}",
        "SPECSCOPE_SERVICE": listen,
        "SPECSCOPE_SPOOL": str(folders.spool),
    }


def _specscope(verb: str) -> list[str]:
    return [sys.executable, "-m", "specscope", verb]


def _dsn(folders: Folders) -> str:
    return f"chdb://{folders.store.resolve()}"


def _spare_core() -> int | None:
    """The last processor, so that service and sidecar have another; None if there is one."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return cores[-1] if len(cores) > 1 else None
