"""Rules that give requests their class, and follow their file as it changes."""

import json
import logging
import os
import re
from pathlib import Path

import pytest
from hook_fakes import ManualClock

from specscope_hook.adapters.vllm_requests import client_id
from specscope_hook.errors import SettingsError
from specscope_hook.rules import ClassRules, Facts, read_rules

RULES = {
    "default": "rest",
    "rules": [
        {"class": "sql", "request_id": "^cmpl-sql-"},
        {"class": "acme", "adapter": "^acme-", "extra": {"route": "chat"}},
        {"class": "tools", "guided": True, "temperature": [0, 0.3]},
        {"class": "long", "prompt_tokens": [1000, None]},
    ],
}


@pytest.fixture
def rig(tmp_path):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(RULES))
    clock = ManualClock()
    return path, clock, ClassRules(path, clock)


@pytest.mark.parametrize(
    ("facts", "label"),
    [
        (Facts(request_id="cmpl-sql-1", guided=True, temperature=0), "sql"),
        (Facts(request_id="my-cmpl-sql-1"), "rest"),
        (Facts(adapter="acme-7", extra={"route": "chat", "more": 1}), "acme"),
        (Facts(adapter="acme-7"), "rest"),
        (Facts(guided=True, temperature=0.29), "tools"),
        (Facts(guided=True, temperature=0.3), "rest"),
        (Facts(guided=False, temperature=0.1), "rest"),
        (Facts(prompt_tokens=1000), "long"),
    ],
)
def test_the_first_rule_whose_every_condition_holds_decides(rig, facts, label):
    assert rig[2].label(facts) == label


@pytest.mark.parametrize(
    ("id_", "client"),
    [
        ("cmpl-sql-7-0-1f2e3d4c", "sql-7"),
        ("cmpl-sql-7-0", "sql-7"),
        ("0_cmpl-sql-7-0-1f2e3d4c", "sql-7"),
        ("3_cmpl-sql-7-12-1f2e3d4c", "sql-7"),
        ("chatcmpl-sql-7-1f2e3d4c", "sql-7"),
        ("1_chatcmpl-sql-7-1f2e3d4c", "sql-7"),
        ("resp_sql-7-1f2e3d4c", "sql-7"),
        ("generate-tokens-sql-7-1f2e3d4c", "sql-7"),
        ("sql-7-1f2e3d4c", "sql-7"),
        ("sql-7", "sql-7"),
        ("", ""),
    ],
)
def test_the_clients_own_part_of_vllms_id(id_, client):
    assert client_id(id_) == client


@pytest.mark.parametrize("pattern", ["^sql-", "^cmpl-sql-"])
def test_a_rule_matches_the_clients_part_and_the_whole_id(tmp_path, pattern):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"rules": [{"class": "sql", "request_id": pattern}]}))
    facts = Facts(request_id="cmpl-sql-7-0-1f2e3d4c", client_id="sql-7")

    assert ClassRules(path).label(facts) == "sql"


def test_the_clients_own_label_stands_behind_the_rules_and_before_the_default(rig):
    rules = rig[2]

    assert rules.label(Facts(extra={"specscope_class": "chat"})) == "chat"
    assert rules.label(Facts(prompt_tokens=1000, extra={"specscope_class": "chat"})) == "long"
    assert rules.label(Facts(extra={"specscope_class": ""})) == "rest"
    assert rules.label(Facts(extra={"specscope_class": ["chat"]})) == "rest"
    assert ClassRules().label(Facts(extra={"specscope_class": "chat"})) == "chat"


def test_without_a_file_everything_is_unlabelled():
    assert ClassRules().label(Facts(request_id="x")) == "unlabelled"


def test_a_change_is_followed_within_a_second(rig):
    path, clock, rules = rig
    before = rules.label(Facts())
    path.write_text(json.dumps({"rules": [{"class": "new"}]}))
    os.utime(path, ns=(1, 1))

    at_once = rules.label(Facts())
    clock.pass_ms(1000)
    later = rules.label(Facts())

    assert (before, at_once, later) == ("rest", "rest", "new")


def test_a_file_that_cannot_be_read_leaves_the_rules_and_is_said_once(rig, caplog):
    path, clock, rules = rig
    rules.label(Facts())
    path.write_text("{")

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            clock.pass_ms(1000)
            label = rules.label(Facts(request_id="cmpl-sql-1"))

    assert label == "sql"
    assert len(caplog.records) == 1


def test_a_file_that_is_gone_leaves_the_rules_and_is_said_once(rig, caplog):
    path, clock, rules = rig
    rules.label(Facts())
    path.unlink()

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            clock.pass_ms(1000)
            label = rules.label(Facts(request_id="cmpl-sql-1"))

    assert label == "sql"
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "[]",
        "{}",
        '{"rules": [{}]}',
        '{"rules": [{"class": "a", "request": "x"}]}',
        '{"rules": [{"class": "a", "request_id": "("}]}',
        '{"rules": [{"class": "a", "temperature": 1}]}',
        '{"rules": [{"class": "a", "extra": 1}]}',
    ],
)
def test_rules_that_mean_nothing_are_refused(wrong):
    with pytest.raises(SettingsError):
        read_rules(wrong)


def test_the_rules_in_the_documentation_are_rules():
    page = Path(__file__).parents[2] / "docs" / "engines" / "vllm.md"
    (text,) = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)

    rules, default = read_rules(text)

    assert [rule.class_ for rule in rules] == ["sql", "tools", "chat", "acme"]
    assert default == "unlabelled"
