"""A boot that went without a word, and its sidecar with it, is a loss that the report prints."""

import io
import re
import time

import pytest
from rich.console import Console
from store.traffic import Traffic, table

from specscope.report.collect import collect
from specscope.report.render import to_html
from specscope.report.terminal import show
from specscope.store.connection import Store
from specscope.store.migrate import migrate

HOUR = 3600 * 10**9


@pytest.fixture
def store(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as opened:
        migrate(opened)
        yield opened


def arrived(store, boot, stored_at, ended_at=None):
    traffic = Traffic(boot=boot, pairs=1)
    (last,) = traffic.messages()[-1:]
    counts = dict.fromkeys(("rounds", "request_parts", "requests", "losses"), 0)
    batch = {
        "replica": traffic.replica, "boot": boot, "number": 1, "first_seq": 1,
        "next_seq": last.next_seq, "stored_at": stored_at, **counts,
    }  # fmt: skip
    store.insert("boot", table("boot", [traffic.boot_row() | {"ended_at": ended_at}]))
    store.insert("batch", table("batch", [batch]))


def test_only_a_boot_that_is_long_silent_and_has_no_end_has_an_unknown_tail(store):
    now = time.time_ns()
    arrived(store, "vanished", now - HOUR)
    arrived(store, "ended", now - HOUR, ended_at=now - HOUR)
    arrived(store, "running", now)

    report, text = collect(store, title="x"), io.StringIO()
    show(report, Console(file=text, width=80))

    (loss,) = report.losses
    assert (loss.replica, loss.reason, loss.count) == ("r0", "tail_unknown", None)
    assert re.search(r"^boot vanished is silent for \d+ min without an end record", loss.meaning)
    assert "boot vanished is silent for" in " ".join(text.getvalue().split())
    assert "boot vanished is silent for" in to_html(report)
