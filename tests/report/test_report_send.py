"""The report sent to a webhook: what it says, when it is tried again, and what is never printed."""

import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from reports import a_report, a_segment

from specscope.cli import main
from specscope.errors import ServiceError, UsageError
from specscope.report.model import ChangeRow, HowRow
from specscope.report.send import MOST_LETTERS, message, send, webhook_host
from specscope.store.connection import Store
from specscope.store.migrate import migrate

SECRET = "/services/T0/B0/hush"


@contextmanager
def webhook(*answers, **headers):
    """A server that gives these answers in turn, then 200. Yields its address and what it got."""
    got, coming = [], list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(coming.pop(0) if coming else 200)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{SECRET}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_message_says_what_to_do_first_and_links_the_page():
    change = ChangeRow("sql, light", "enable", 0, 4, None, "measured", "high", 24, "", None)
    how = HowRow([], "specscope gate apply", {})
    report = a_report(changes=[change], how=how)

    text = message(report, "https://specscope.example.org/report")["text"]

    lines = text.splitlines()
    assert report.headline in lines[0]
    assert lines[1].startswith("• sql, light: switch speculation on: k = 0 to k = 4")
    assert lines[2] == "`specscope gate apply`"
    assert "prose, light: disable, 1.30x" in lines
    assert "3 of 1003 records were lost." in lines
    assert lines[-1] == "<https://specscope.example.org/report|the whole report>"


def test_a_name_from_the_traffic_calls_nobody_and_a_long_message_is_cut_at_a_line():
    loud = [a_segment(name=f"<!channel> & {'x' * 400} {n}") for n in range(40)]

    text = message(a_report(segments=loud), "https://x")["text"]

    assert "<!channel>" not in text
    assert "&lt;!channel&gt; &amp;" in text
    assert len(text) <= MOST_LETTERS
    assert text.endswith("\n…\n<https://x|the whole report>")


def test_it_is_posted_as_json():
    with webhook() as (url, got):
        send(message(a_report()), url, sleep=pytest.fail)

    ((path, kind, body),) = got
    assert (path, kind) == (SECRET, "application/json")
    assert set(body) == {"text"}


def test_a_side_that_is_busy_is_asked_again():
    pauses = []
    with webhook(503, 429, Retry_After="30") as (url, got):
        send({"text": "x"}, url, sleep=pauses.append)

    assert len(got) == 3
    assert pauses == [30.0, 30.0]


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (302, 1), (500, 4)])
def test_what_is_not_taken_is_one_line_without_the_secret(status, tries):
    with (
        webhook(*[status] * 4, Location="http://127.0.0.1:9/other") as (url, got),
        pytest.raises(ServiceError, match=f"answered {status}") as raised,
    ):
        send({"text": "x"}, url, sleep=lambda _: None)

    assert len(got) == tries
    assert "hush" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_nobody_there_is_one_line_too():
    with webhook() as (url, _):
        pass

    with pytest.raises(ServiceError, match=r"127\.0\.0\.1") as raised:
        send({"text": "x"}, url, sleep=lambda _: None)

    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("url", ["", "slack", "ftp://x/y", "https://", "https://h:port/"])
def test_an_address_that_is_none_is_said_before_the_work(url):
    with pytest.raises(UsageError):
        webhook_host(url)


@pytest.fixture
def empty(tmp_path):
    where = f"chdb://{tmp_path}/store"
    with Store.open(where) as store:
        migrate(store)
    return where


def test_the_command_writes_then_sends(empty, tmp_path, capsys, monkeypatch):
    out = str(tmp_path / "out")
    with webhook() as (url, got):
        assert main(["report", "--store", empty, "--out", out, "--send", url]) == 3
        monkeypatch.setenv("SPECSCOPE_REPORT_SEND", url)
        assert main(["report", "--store", empty, "--out", out, "--link", "https://x"]) == 3
    with webhook(404) as (url, _):
        assert main(["report", "--store", empty, "--out", out, "--send", url]) == 1

    assert [body["text"].count("No data") for _, _, body in got] == [1, 1]
    assert got[1][2]["text"].endswith("<https://x|the whole report>")
    assert (tmp_path / "out" / "report.html").exists()
    last = capsys.readouterr().err.strip()
    assert "answered 404" in last
    assert "hush" not in last
    assert main(["report", "--store", empty, "--out", out, "--send", "slack"]) == 2


def test_lost_records_are_left_out_if_there_are_none():
    report = a_report()
    whole = replace(report, accounting=replace(report.accounting, recorded=1000, lost=0))

    assert "were lost" not in message(whole)["text"]
