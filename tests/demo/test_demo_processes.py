"""Children end with their parent, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from specscope.demo.processes import Processes
from specscope.errors import DemoError

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('deaf', flush=True); time.sleep(600)",
]


def alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may go while its file is read
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_leaving_the_context_ends_every_child_even_a_deaf_one(tmp_path):
    with Processes(tmp_path) as processes:
        one = processes.start("one", SLEEPER, os.environ)
        other = processes.start("other", DEAF, os.environ)
        until(lambda: "deaf" in (tmp_path / "other.log").read_text())

    assert not alive(one.pid)
    assert not alive(other.pid)


def test_a_child_dies_when_its_parent_is_killed(tmp_path):
    program = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from specscope.demo.processes import Processes\n"
        "with Processes(Path(sys.argv[1])) as processes:\n"
        f"    child = processes.start('child', {SLEEPER!r}, os.environ)\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    pid = int(parent.stdout.readline())

    parent.send_signal(signal.SIGKILL)
    parent.wait()

    until(lambda: not alive(pid))


def test_a_child_that_fails_is_named_with_its_last_words(tmp_path):
    with Processes(tmp_path) as processes:
        child = processes.start(
            "engine", [sys.executable, "-c", "raise SystemExit('no model')"], os.environ
        )
        child.wait()

        with pytest.raises(DemoError, match="engine ended with code 1: no model"):
            processes.check()


def test_a_child_that_ends_before_its_time_is_missed_even_if_it_ends_well(tmp_path):
    with Processes(tmp_path) as processes:
        processes.start("agent", [sys.executable, "-c", "print('told to go')"], os.environ).wait()

        with pytest.raises(DemoError, match="agent ended before its time: told to go"):
            processes.check()
        with pytest.raises(DemoError, match="agent ended before its time"):
            processes.stop("agent")


def test_a_child_that_is_to_end_by_itself_may(tmp_path):
    with Processes(tmp_path) as processes:
        child = processes.start("engine", [sys.executable, "-c", ""], os.environ, finite=True)
        child.wait()

        processes.check()
        processes.stop("engine")
