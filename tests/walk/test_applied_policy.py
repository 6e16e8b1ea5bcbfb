"""A changed policy reaches a running loop through every stage, with real processes."""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest
from waiting import PATIENCE_S

from specscope_agent import telemetry_pb2 as wire
from specscope_agent.telemetry_pb2_grpc import TelemetryStub

FOLLOWER = str(Path(__file__).parent / "follower.py")
TOKEN = "correct-horse"


class Operator:
    """`specscope gate` against the read endpoint of the service that owns the store."""

    def __init__(self, pipeline):
        self.pipeline = pipeline
        pipeline.environment["SPECSCOPE_APPLY_TOKEN"] = TOKEN

    def gate(self, *words, expect=0):
        run = subprocess.run(
            [sys.executable, "-m", "specscope", "gate", *words,
             "--store", f"http://{self.pipeline.http}"],
            env=self.pipeline.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
        assert run.returncode == expect, run.stderr
        return run.stdout if expect == 0 else run.stderr

    def table(self, k):
        path = self.pipeline.folder / f"table-{k}.json"
        path.write_text(json.dumps({"table": [{"class": "sql", "k": k}], "default_k": 0}))
        return str(path)

    def send(self, number, body):
        """Past the command, which would refuse what is broken by itself."""
        with grpc.insecure_channel(self.pipeline.environment["SPECSCOPE_SERVICE"]) as channel:
            TelemetryStub(channel).Apply(
                wire.Policy(number=number, json=json.dumps(body)),
                timeout=PATIENCE_S,
                metadata=[("authorization", f"Bearer {TOKEN}")],
            )

    def follower(self, name):
        log = self.pipeline.folder / f"{name}.jsonl"
        log.touch()
        self.pipeline.start(name, FOLLOWER, str(log))
        return lambda: [json.loads(line) for line in log.read_text().splitlines()]

    def sidecar_and_follower_elsewhere(self):
        """Another pod, which has never heard of a policy."""
        for name in ("rings", "spool"):
            folder = self.pipeline.folder / f"{name}-elsewhere"
            folder.mkdir()
            self.pipeline.environment[f"SPECSCOPE_{name.upper()}"] = str(folder)
        self.pipeline.environment["SPECSCOPE_REPLICA"] = "elsewhere"
        self.pipeline.start("agent-elsewhere", "-m", "specscope", "agent")
        return self.follower("follower-elsewhere")


def in_force(follower):
    lines = [(line["k"], line["policy"]) for line in follower()]
    return lines[-1] if lines else None


def test_an_applied_table_reaches_a_running_loop_and_outlives_the_service(pipeline):
    operator = Operator(pipeline)
    pipeline.service()
    pipeline.agent()
    follower = operator.follower("follower")
    pipeline.until(lambda: in_force(follower) == (None, None))

    assert "policy 1 is in force" in operator.gate("apply", operator.table(4))
    pipeline.until(lambda: in_force(follower) == (4, 1))

    assert "policy 2 is in force" in operator.gate("apply", operator.table(2))
    pipeline.until(lambda: in_force(follower) == (2, 2))

    pipeline.kill("service")
    pipeline.service()
    assert operator.gate("show").startswith("policy 2 (table)")
    elsewhere = operator.sidecar_and_follower_elsewhere()
    pipeline.until(lambda: in_force(elsewhere) == (2, 2))
    assert in_force(follower) == (2, 2)

    assert "policy 3 puts the table of policy 1 in force" in operator.gate("rollback")
    # The first sidecar comes back after a pause of its own.
    pipeline.until(lambda: in_force(follower) == in_force(elsewhere) == (4, 3))
    assert [(line["k"], line["policy"]) for line in follower()] == [
        (None, None), (4, 1), (2, 2), (4, 3)
    ]  # fmt: skip
    assert not any(line["refused"] for line in follower())


def test_a_broken_policy_is_refused_and_the_old_one_stays(pipeline):
    operator = Operator(pipeline)
    pipeline.service()
    pipeline.agent()
    follower = operator.follower("follower")
    operator.gate("apply", operator.table(4))
    pipeline.until(lambda: in_force(follower) == (4, 1))
    broken = {"policy": 2, "kind": "table", "table": [{"class": "sql", "k": -1}]}
    file = pipeline.folder / "broken.json"
    file.write_text(json.dumps(broken))

    said = operator.gate("apply", str(file), expect=1)
    with pytest.raises(grpc.RpcError) as refusal:
        operator.send(2, broken)
    time.sleep(3)  # longer than the service waits before it looks for policies again

    assert len(said.splitlines()) == 1
    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "k is -1" in refusal.value.details()
    assert in_force(follower) == (4, 1)
    assert operator.gate("show").startswith("policy 1 (table)")


def test_a_policy_detaches_the_hook_of_a_living_process_through_its_sidecar(pipeline):
    operator = Operator(pipeline)
    pipeline.service()
    pipeline.agent()
    follower = operator.follower("follower")
    operator.gate("apply", operator.table(4))
    pipeline.until(lambda: in_force(follower) == (4, 1))
    body = {"policy": 2, "kind": "table", "table": [], "default_k": 4, "detach": True}

    operator.send(2, body)
    pipeline.until(lambda: follower()[-1]["k"] is None)
    lost = "SELECT detail FROM loss WHERE reason = 'fault' FORMAT TSVRaw"
    pipeline.until(lambda: "policy 2 detaches the hook" in asked(pipeline, lost))

    assert pipeline.running["follower"].poll() is None
    pipeline.stop("follower")


def asked(pipeline, sql):
    """The read endpoint's answer."""
    with urllib.request.urlopen(
        f"http://{pipeline.http}/?query={quote(sql)}", timeout=PATIENCE_S
    ) as answer:
        return answer.read().decode()
