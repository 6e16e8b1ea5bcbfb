"""Policies at the sidecar: nothing in one can end it, and damage to a ring loses none."""

import json
import os

import pytest
from agent_support import a_boot, ring_at

from specscope_agent.agent import Agent
from specscope_agent.policies import Policies
from specscope_agent.settings import AgentSettings

GOOD = json.dumps({"policy": 3, "default_k": 2})
HUGE = "1" + "0" * 400
BAD = [
    "",
    "7",
    "[" * 100_000,
    f'{{"policy": {HUGE}}}',
    f'{{"policy": 4, "default_k": {HUGE}}}',
    f'{{"policy": 4, "share": {HUGE}}}',
    f'{{"policy": 4, "guardrail": {{"gap_p95_ms": {HUGE}}}}}',
    f'{{"policy": 4, "guardrail": {{"tokens_per_round": {HUGE}}}}}',
    f'{{"policy": 4, "table": [{{"k": 1, "context": [0, {HUGE}]}}]}}',
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_a_policy_that_cannot_be_followed_is_left_and_the_one_in_force_stays(tmp_path, text):
    policies = Policies(tmp_path)
    policies.receive(3, GOOD)

    policies.receive(4, text)

    assert (policies.number, policies.text) == (3, GOOD)
    assert Policies(tmp_path).text == GOOD


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_a_kept_policy_that_cannot_be_followed_is_set_aside(tmp_path, text):
    (tmp_path / "spool").mkdir()
    (tmp_path / "rings").mkdir()
    (tmp_path / "spool" / "policy.json").write_text(text)

    agent = Agent(AgentSettings(rings=tmp_path / "rings", spool=tmp_path / "spool"))
    agent.tick()
    number = agent.policies.number
    agent.close()

    assert number == 0
    assert not (tmp_path / "spool" / "policy.json").exists()
    assert (tmp_path / "spool" / "policy.refused").exists()


def test_a_kept_policy_that_is_a_pipe_holds_up_nobody(tmp_path):
    os.mkfifo(tmp_path / "policy.json")

    assert Policies(tmp_path).number == 0


def test_a_ring_that_was_damaged_gets_its_policy_again(tmp_path):
    ring = ring_at(tmp_path, a_boot())
    (tmp_path / "spool").mkdir()
    agent = Agent(AgentSettings(rings=tmp_path, spool=tmp_path / "spool"))
    agent.policies.receive(3, GOOD)
    agent.tick()
    before = ring.control()

    os.truncate(ring.path, 0)
    agent.tick()
    ring._inspect_at = 0
    ring.flush()
    agent.tick()
    after = ring.control()
    agent.close()
    ring.close()

    assert before[1] == after[1] == GOOD
    assert after[0] > before[0]
