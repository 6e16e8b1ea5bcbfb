"""Child processes that always end with their parent."""

from __future__ import annotations

import ctypes
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from specscope.errors import DemoError

STOP_SECONDS = 120.0  # the service stores what it holds before it goes; a busy machine is slow
PR_SET_PDEATHSIG = 1


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now.

    Below those that the system gives to connections: until a child listens on it, one of those
    may be taken by any.
    """
    for _ in range(100):
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise DemoError("no port of the loopback interface is free")


class Processes:
    """Named children with a log each; leaving the context stops them in reverse order.

    Each child runs in its own session. So Ctrl-C reaches only the parent, which decides the order
    in which children end. If the parent is killed, the kernel ends them (Linux).
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: dict[str, subprocess.Popen[str]] = {}
        self._finite: set[str] = set()

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdout: int | None = None,
        finite: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a child; its output goes to `<logs>/<name>.log` unless `stdout` says otherwise.

        finite: the child ends by itself. If any other child ends before `stop`, that is an error.
        """
        log = (self._logs / f"{name}.log").open("w")
        with log:
            child = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        self._children[name] = child
        if finite:
            self._finite.add(name)
        return child

    def check(self) -> None:
        """Raise DemoError with the last line of its log if a child failed or ended too early."""
        for name in self._children:
            self._check(name)

    def _check(self, name: str) -> None:
        code = self._children[name].poll()
        if code == 0 and name not in self._finite:
            raise DemoError(f"{name} ended before its time: {self._last_line(name)}")
        if code not in (None, 0):
            raise DemoError(f"{name} ended with code {code}: {self._last_line(name)}")

    def stop(self, name: str) -> None:
        """Ask a child to finish and wait; kill it if it does not.

        Raises DemoError if it ended early, was killed or failed, because its data may then be
        incomplete.
        """
        self._check(name)
        child = self._children.pop(name)
        child.send_signal(signal.SIGTERM)  # nothing, where it has ended
        try:
            code = child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(child)
            raise DemoError(f"{name} did not stop within {STOP_SECONDS:.0f} s") from None
        if code not in (0, -signal.SIGTERM):
            raise DemoError(f"{name} ended with code {code}: {self._last_line(name)}")

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in reversed(self._children.values()):
            child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 5.0
        for child in self._children.values():
            try:
                child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _kill(child)
        self._children.clear()

    def _last_line(self, name: str) -> str:
        lines = (self._logs / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing in its log"


def _kill(child: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        child.kill()
    child.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
