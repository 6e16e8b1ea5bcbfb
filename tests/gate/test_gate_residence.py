"""Blocks as long as the requests of the store ask for."""

import json
import time

import pytest
from gate.test_gate_commands import run
from store.traffic import Traffic, table

from specscope.store.connection import Store
from specscope.store.migrate import migrate


def served(where, e2e_ms):
    """A store with requests that ended, in so much time each."""
    now = time.time_ns()
    rows = []
    for number, each in enumerate(e2e_ms):
        row = Traffic(pairs=1, requests=1).requests_ended[0]
        times = {"admitted_at": now - 3600 * 10**9, "ended_at": now - 1800 * 10**9}
        rows.append(row | times | {"request": number, "e2e_ms": each, "version": 1})
    with Store.open(where) as store:
        migrate(store)
        if rows:
            store.insert("request", table("request", rows))


def calibrated(capsys, where, *words):
    window = ("calibrate", "--k", "0,4", "--minutes", "60", "--json")
    code, out, _ = run(capsys, *window, "--store", where, *words)
    assert code == 0
    return json.loads(out)["block_s"]


@pytest.mark.parametrize(
    ("e2e_ms", "length"),
    [
        ([4_000.0] * 50, 120.0),  # the shortest
        ([75_000.0] * 50, 1200.0),  # 16 means
        ([2_000.0] * 90 + [90_000.0] * 10, 360.0),  # a heavy tail: four times the 95th percentile
    ],
)
def test_blocks_follow_how_long_requests_stay(tmp_path, capsys, e2e_ms, length):
    where = f"chdb://{tmp_path}/store"
    served(where, e2e_ms)

    _, out, _ = run(capsys, "plan", "--store", where, "--json")
    _, text, _ = run(capsys, "plan", "--store", where)

    blocks = json.loads(out)["blocks"]
    assert (blocks["length_s"], blocks["burn_in_s"]) == (length, length / 4)
    assert blocks["requests"] == len(e2e_ms)
    assert f"blocks of {length:.0f} s, {length / 4:.0f} s of it burn-in" in text
    assert calibrated(capsys, where) == length
    assert calibrated(capsys, where, "--block-s", "60") == 60


def test_without_requests_or_a_store_blocks_are_as_long_as_ever(tmp_path, capsys):
    where = f"chdb://{tmp_path}/store"
    served(where, [])

    _, out, _ = run(capsys, "plan", "--store", where, "--json")

    assert json.loads(out)["blocks"] is None
    assert calibrated(capsys, where) == 120
    assert calibrated(capsys, f"chdb://{tmp_path}/nowhere") == 120
