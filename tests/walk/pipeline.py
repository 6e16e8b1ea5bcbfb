"""Real processes of the whole way: service, sidecar, and whatever writes a ring."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from ports import own_port
from waiting import PATIENCE_S, until

HERE = Path(__file__).parent


class Pipeline:
    """Starts and kills; every process's output goes to a file of the folder."""

    def __init__(self, folder):
        self.folder = folder
        self.rings, self.spool = folder / "rings", folder / "spool"
        self.rings.mkdir()
        self.spool.mkdir()
        self.http = f"127.0.0.1:{own_port()}"
        listen = f"127.0.0.1:{own_port()}"
        self.store = f"chdb://{folder / 'store'}"
        kept = {n: v for n, v in os.environ.items() if not n.startswith("SPECSCOPE_")}
        self.environment = kept | {
            "SPECSCOPE_RINGS": str(self.rings),
            "SPECSCOPE_REPLICA": "walk",
            "SPECSCOPE_STORE": self.store,
            "SPECSCOPE_LISTEN": listen,
            "SPECSCOPE_HTTP": self.http,
            "SPECSCOPE_SERVICE": listen,
            "SPECSCOPE_SPOOL": str(self.spool),
        }
        self.running = {}

    def start(self, name, *command):
        log = (self.folder / f"{name}.log").open("a")
        self.running[name] = subprocess.Popen(
            [sys.executable, *command], env=self.environment, stdout=log, stderr=log
        )
        return self.running[name]

    def service(self, wait=True):
        process = self.start("service", "-m", "specscope", "serve")
        if wait:
            self.until(self.healthy)
        return process

    def agent(self, wait=True):
        process = self.start("agent", "-m", "specscope", "agent")
        if wait:
            self.until(lambda: any(self.spool.iterdir()))
        return process

    def traffic(self, name, records, seed, pause_us=0):
        """Rounds up to so many records, or until `stop`; the path of what it says it did."""
        log = self.folder / f"{name}.jsonl"
        self.start(name, str(HERE / "traffic.py"), str(records), str(seed), str(pause_us), str(log))
        return log

    def healthy(self):
        try:
            with urllib.request.urlopen(f"http://{self.http}/health", timeout=2):
                return True
        except OSError:
            return False

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name, within=PATIENCE_S):
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        assert process.wait(within) == 0, (self.folder / f"{name}.log").read_text()[-2000:]

    def finish(self, name, within=PATIENCE_S):
        process = self.running.pop(name)
        assert process.wait(within) == 0, (self.folder / f"{name}.log").read_text()[-2000:]

    def shipped(self):
        """Whether the sidecar has removed every ring, which it does when all is acknowledged."""
        return not any(self.rings.iterdir())

    def until(self, condition):
        """Wait for it, unless a process ends with an error first."""
        until(lambda: self._well() and condition())

    def _well(self):
        for name, process in self.running.items():
            text = (self.folder / f"{name}.log").read_text()[-2000:]
            assert process.poll() in (None, 0), f"{name}: {text}"
        return True

    def close(self):
        for process in self.running.values():
            process.kill()
            process.wait()
