"""The latest report at /report of a service: for readers who see all replicas."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

import pytest
from service.harness import service
from service.sidecar import exchange
from service.tokens import write_tokens
from store.traffic import Traffic
from waiting import PATIENCE_S

from specscope.service import page


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    tokens = write_tokens(
        folder / "tokens.toml", writes="publish", reads="read", a_reads="a: read", counts="metrics"
    )
    with service(f"chdb://{folder}/store", told={"tokens": tokens}) as running_:
        traffic = Traffic(replica="a-0")
        exchange(running_.port, traffic.messages(), sources=[("a-0", "b0")], token="writes")
        yield running_


def get(running, token):
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.http_port}/report",
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.read().decode(), answer.headers


def test_a_reader_gets_the_page(running):
    text, headers = get(running, "reads")

    assert text.startswith("<!doctype html>")
    assert "<td>a-0</td>" in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert get(running, "reads")[0] == text  # kept


@pytest.mark.parametrize(
    ("token", "status"), [(None, 401), ("wrong", 401), ("counts", 403), ("a_reads", 403)]
)
def test_nobody_else_does(running, token, status):
    with pytest.raises(urllib.error.HTTPError) as raised:
        get(running, token)

    assert raised.value.code == status
    assert "<html" not in raised.value.read().decode()


def test_a_service_without_reports_says_what_is_missing(running, monkeypatch):
    monkeypatch.setattr(page, "KEPT_S", -1.0)
    monkeypatch.setitem(sys.modules, "jinja2", None)

    with pytest.raises(urllib.error.HTTPError) as raised:
        get(running, "reads")

    assert raised.value.code == 501
    assert "specscope[report]" in raised.value.read().decode()
