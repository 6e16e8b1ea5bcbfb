"""Pushing puts every dashboard into one folder of a real HTTP server, again and again."""

from __future__ import annotations

import json
import socket

import pytest
from grafana_server import TOKEN, running

from specscope.cli import main
from specscope_dashboards.errors import GrafanaError
from specscope_dashboards.grafana import push
from specscope_dashboards.rendering import rendered


@pytest.fixture
def grafana():
    with running() as server:
        yield server


def test_every_dashboard_arrives_whole_in_the_folder(grafana):
    pushed = push(rendered(), grafana.url, TOKEN)

    assert grafana.folders == {"specscope": "specscope"}
    assert grafana.dashboards == {d["uid"]: d for d in rendered().values()}
    assert set(grafana.placed.values()) == {"specscope"}
    assert [p.version for p in pushed] == [1] * len(rendered())


def test_a_second_push_replaces_and_makes_no_second_folder(grafana):
    push(rendered(), grafana.url, TOKEN)

    again = push(rendered(), grafana.url, TOKEN)

    assert [p.version for p in again] == [2] * len(rendered())
    assert len(grafana.folders) == 1
    assert len(grafana.dashboards) == len(rendered())


def test_grafana_behind_a_path_is_reached():
    with running(prefix="/grafana") as server:
        push(rendered(), f"{server.url}/", TOKEN)

        assert len(server.dashboards) == len(rendered())


def test_a_wrong_token_is_one_line_that_says_so(grafana):
    with pytest.raises(GrafanaError, match=r"127\.0\.0\.1 does not know this token"):
        push(rendered(), grafana.url, "wrong")

    assert grafana.dashboards == {}


def test_what_grafana_refuses_is_said_in_its_own_words(grafana):
    nameless = {"nameless": {"uid": "x", "title": ""}}

    with pytest.raises(GrafanaError, match="title cannot be empty"):
        push(nameless, grafana.url, TOKEN)


def test_nobody_there_is_one_line_without_the_password():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

        with pytest.raises(GrafanaError, match="cannot be reached") as refusal:
            push(rendered(), f"http://admin:secret@127.0.0.1:{port}")

    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_address_that_is_none_is_refused_before_anything_is_sent():
    with pytest.raises(GrafanaError, match="is not where Grafana could be"):
        push(rendered(), "localhost:3000", TOKEN)


def test_the_command_pushes_with_the_token_from_the_environment(grafana, monkeypatch, capsys):
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)

    code = main(["dashboards", "push", grafana.url, "--json"])

    assert code == 0
    printed = json.loads(capsys.readouterr().out)
    assert {each["uid"] for each in printed} == set(grafana.dashboards)


def test_the_command_ends_with_one_line_and_code_1_where_it_cannot(grafana, monkeypatch, capsys):
    monkeypatch.delenv("GRAFANA_TOKEN", raising=False)

    code = main(["dashboards", "push", grafana.url])

    assert code in (1, 2)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "does not know this token" in error
