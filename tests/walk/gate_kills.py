"""The gate under faults, in real time: calibrate, verdict, apply, rollback, and random kills.

The reference engine serves the bundled pair to clients of four classes, one batch for all, behind
the real sidecar and service. A table gives each class a draft length of its own. At each step the
command, the service or the sidecar is killed at a random moment, and comes back.
At the end the rounds of the store say what the engine did, and are held against the policies:

- no round runs an arm of an experiment later than a block after its last pair;
- outside experiments each class drafts by the table of the policy that the engine follows;
- while sidecar and service talk, it follows the newest policy a block after the store has it.

Run: PYTHONPATH=tests:tests/walk python tests/walk/gate_kills.py --faults 100 (`make gate-kills`).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pipeline import Pipeline
from ports import own_port

from specscope.policy.stored import StoredPolicy, read_policies
from specscope.policy.table import State
from specscope.store.connection import Store

BLOCK_S = 2.0
K_MAX = 4
PROMPTS = {
    "sql": "SELECT id FROM", "json": '{"id": ', "python": "def count(", "prose": "The road was",
}  # fmt: skip
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Episode:
    """What happened. faults: by step and victim. up: stretches in which sidecar and service
    talked, ns since 1970. stored: when a policy was first seen in the store, ns since 1970.
    command_s: time of a command.
    """

    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    up: list[tuple[int, int]] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    stored: dict[int, int] = field(default_factory=dict)
    command_s: float = 2.0


class Campaign:
    """One pipeline, its operator, and chance."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.pipeline, self.random, self.seen = Pipeline(folder), Random(seed), Episode()
        self.pipeline.environment |= {
            "SPECSCOPE_APPLY_TOKEN": "correct-horse",
        }
        self.port = own_port()
        self.serving, self.up_since = True, 0

        self.lengths: dict[str, int] = {}

    def start(self) -> None:
        """Everything up, and clients that ask."""
        self.pipeline.service()
        self.pipeline.agent()
        self.pipeline.start(
            "engine", "-m", "specscope", "engine", "serve", "--host", "127.0.0.1", "--port",
            str(self.port), "--k", str(K_MAX), "--slots", str(len(PROMPTS)), "--threads", "1",
        )  # fmt: skip
        self.pipeline.until(self._engine_up)
        self.clients = [threading.Thread(target=self._ask, args=(one,)) for one in PROMPTS]
        self.clients.append(threading.Thread(target=self._watch_policies))
        for one in self.clients:
            one.start()
        self._wait_until_connected()
        began = time.monotonic()
        self._command("history").wait()
        self.seen.command_s = time.monotonic() - began

    def episode(self) -> None:
        """The four steps, each with a fault."""
        pipeline = self.pipeline
        self.step(
            "calibrate", "calibrate", "--arms", "k0,k3", "--minutes", "0.2", "--block-s",
            f"{BLOCK_S:g}", "--default-k", "0", "--closed-loop", "--approve",
            lasts_s=16.0, faults=3,
        )  # fmt: skip
        self.step("verdict", "recommend", "--default-k", "0", "--closed-loop")
        before = self.lengths
        while self.lengths == before:
            self.lengths = {name: self.random.randint(0, K_MAX) for name in PROMPTS}
        file = pipeline.folder / "table.json"
        cells = [{"class": name, "k": k} for name, k in self.lengths.items()]
        file.write_text(json.dumps({"table": cells, "default_k": 0}))
        self.step("apply", "apply", str(file))
        if self.random.random() < 0.7:
            self.step("rollback", "rollback")

    def _command(self, *words: str) -> subprocess.Popen[bytes]:
        pipeline = self.pipeline
        log = (pipeline.folder / "commands.log").open("a")
        return subprocess.Popen(
            [sys.executable, "-m", "specscope", "gate", *words,
             "--store", f"http://{pipeline.http}"],
            env=pipeline.environment, stdout=log, stderr=log,
        )  # fmt: skip

    def step(self, name: str, *words: str, lasts_s: float = 0.0, faults: int = 1) -> None:
        """A command, and faults while it works or while what it started goes on for `lasts_s`."""
        random = self.random
        self.pipeline.until(self.pipeline.healthy)
        process, began = self._command(*words), time.monotonic()
        moments = sorted(
            random.uniform(0, 1.3 * self.seen.command_s + lasts_s) for _ in range(faults)
        )
        for moment in moments:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            runs = process.poll() is None
            victim = random.choice(
                ["command", "service", "agent"] if runs else ["service", "agent"]
            )
            if victim == "command":
                process.send_signal(random.choice(SIGNALS))
            else:
                self._kill(victim)
            self.seen.faults[name, victim] += 1
        try:
            code = process.wait(3 * lasts_s + 20 * self.seen.command_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        self.seen.answers[f"{name} {code}"] += 1
        time.sleep(random.uniform(0.0, 2.0))

    def _kill(self, victim: str) -> None:
        now = time.time_ns()
        self.seen.up.append((self.up_since, now))
        self.pipeline.kill(victim)
        time.sleep(self.random.uniform(0.0, 2.0))
        getattr(self.pipeline, victim)()
        self._wait_until_connected()

    def _wait_until_connected(self) -> None:
        """Until a round that ran just now is in the store."""
        now = time.time_ns()
        self.pipeline.until(self.pipeline.healthy)
        self.pipeline.until(lambda: self._newest_round() > now)
        self.up_since = time.time_ns()

    def _newest_round(self) -> int:
        return self._number("SELECT toUnixTimestamp64Nano(max(started_at)) FROM round")

    def _watch_policies(self) -> None:
        """Note when each policy is in the store; a policy is dated when its command begins."""
        while self.serving:
            newest = self._number("SELECT max(policy) FROM policy")
            for number in range(max(self.seen.stored, default=0) + 1, newest + 1):
                self.seen.stored[number] = time.time_ns()
            time.sleep(0.1)

    def _number(self, sql: str) -> int:
        """The service's answer; 0 if it does not answer."""
        url = f"http://{self.pipeline.http}/?query={urllib.parse.quote(sql)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return int(answer.read() or 0)
        except OSError:
            return 0

    def finish(self) -> tuple[list[StoredPolicy], list[dict], list[dict]]:
        """Everything ended in order; the policies, the rounds that were stored, and the parts of
        requests: one request's rounds under one policy and in one block at most."""
        pipeline = self.pipeline
        time.sleep(3 * BLOCK_S)
        self.seen.up.append((self.up_since, time.time_ns()))
        self.serving = False
        for one in self.clients:
            one.join()
        pipeline.stop("engine")
        pipeline.until(pipeline.shipped)
        pipeline.stop("agent")
        pipeline.stop("service")
        with Store.open(pipeline.store) as store:
            rounds = store.rows(
                "SELECT toUnixTimestamp64Nano(started_at) AS at, policy, arm FROM round FINAL "
                "ORDER BY at"
            )
            parts = store.rows(
                "SELECT toUnixTimestamp64Nano(started_at) AS at, policy, class, length(k) AS n, "
                "arrayMax(k) AS longest FROM request_part FINAL WHERE arm IS NULL ORDER BY at"
            )
            return read_policies(store), rounds, parts

    def _engine_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                return True
        except OSError:
            return False

    def _ask(self, class_: str) -> None:
        random = Random(class_)
        while self.serving:
            body = {"prompt": PROMPTS[class_], "max_tokens": 40, "temperature": 1,
                    "seed": random.getrandbits(31)}  # fmt: skip
            request = urllib.request.Request(
                f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode(),
                {"content-type": "application/json", "x-specscope-class": class_},
            )  # fmt: skip
            with urllib.request.urlopen(request, timeout=180) as answer:
                answer.read()


def check(
    seen: Episode, policies: list[StoredPolicy], rounds: list[dict], parts: list[dict]
) -> dict[str, object]:
    """Violations of each rule, and how long the engine took to follow a change."""
    by_number = {policy.number: policy for policy in policies}
    # The rounds before an experiment's first pair run under the table before it.
    takes_effect = {
        policy.number: max(
            seen.stored.get(policy.number, policy.created_at), policy.span[0] if policy.span else 0
        )
        for policy in policies
    }
    block_ns = round(1e9 * BLOCK_S)
    late, wrong, stale, checked = 0, 0, 0, 0
    lag_ns = 0
    for row in rounds:
        policy = by_number.get(row["policy"] or 0)
        if policy is None:
            continue
        checked += 1
        span = policy.span
        over = span is not None and span[1] is not None and row["at"] > span[1]
        if over and row["arm"] and span is not None and span[1] is not None:
            late += row["at"] > span[1] + block_ns
        due = [at for number, at in takes_effect.items() if number > policy.number]
        approved = min(due, default=None)
        if approved is not None and row["at"] > approved:
            connected = _connected_since(seen.up, row["at"])
            if connected is not None:
                behind = row["at"] - max(approved, connected)
                lag_ns = max(lag_ns, behind)
                stale += behind > block_ns
    for part in parts:
        policy = by_number.get(part["policy"] or 0)
        wrong += policy is not None and part["longest"] > _length(policy, part)
    return {
        "rounds": checked, "after the end": late, "beyond the table": wrong,
        "older than the newest": stale, "longest_lag_s": lag_ns / 1e9,
    }  # fmt: skip


def drafted(policies: list[StoredPolicy], parts: list[dict]) -> int:
    """Classes under a policy that ran for a while and never drafted as long as its table says.

    A text that ends shortens a round's drafts, so some rounds have to reach the table's length.
    """
    short = 0
    for policy in policies:
        for class_ in PROMPTS:
            own = [p for p in parts if p["policy"] == policy.number and p["class"] == class_]
            if sum(part["n"] for part in own) >= 40:
                short += max(part["longest"] - _length(policy, part) for part in own) < 0
    return short


def _length(policy: StoredPolicy, part: dict) -> int:
    """The draft length that the policy's table gives a part's class."""
    state = State(part["class"], context=10, output=40, batch=len(PROMPTS))
    return policy.table_at(part["at"]).k(state)


def _connected_since(up: list[tuple[int, int]], at: int) -> int | None:
    """Since when sidecar and service talk at a moment; None if they may not."""
    return next((begin for begin, end in up if begin <= at <= end), None)


def campaign(folder: Path, faults: int, seed: int, minutes: float = 1e9) -> dict[str, object]:
    """So many faults, then the check of all rounds."""
    running = Campaign(folder, seed)
    end = time.monotonic() + 60 * minutes
    try:
        running.start()
        while sum(running.seen.faults.values()) < faults and time.monotonic() < end:
            running.episode()
        policies, rounds, parts = running.finish()
    finally:
        running.serving = False
        running.pipeline.close()
    counts = check(running.seen, policies, rounds, parts)
    return {
        **counts, "never as long as the table": drafted(policies, parts),
        "policies": len(policies), "faults": sum(running.seen.faults.values()),
        "by step": {" ".join(key): n for key, n in sorted(running.seen.faults.items())},
        "answers": dict(sorted(running.seen.answers.items())),
    }  # fmt: skip


BROKEN = (
    "after the end", "beyond the table", "older than the newest", "never as long as the table",
)  # fmt: skip


def main() -> int:
    """Print the counts; fails if a rule was broken once."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--faults", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--minutes", type=float, default=1e9, help="after which it ends")
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = campaign(Path(folder), args.faults, args.seed, args.minutes)
    sys.stdout.write(json.dumps(counts, indent=1) + "\n")
    return int(any(counts[name] for name in BROKEN))


if __name__ == "__main__":
    sys.exit(main())
