"""Memory that nothing uses goes back to the system."""

from __future__ import annotations

import gc
from pathlib import Path

from specscope.service.memory import give_back, settle
from specscope.store.connection import Store


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def test_memory_that_nothing_uses_goes_back_to_the_system(tmp_path):
    with Store.open(f"chdb://{tmp_path}/store") as store:
        store.command("CREATE TABLE t (a UInt64, s String) ENGINE = MergeTree ORDER BY a")
        for _ in range(4):
            store.command("INSERT INTO t SELECT number, toString(number) FROM numbers(1000000)")
        store.rows("SELECT uniqExact(s) AS n FROM t")
        before = resident_mib()

        give_back(store)

        assert resident_mib() < before - 30


def test_what_is_loaded_is_not_searched_for_garbage_again():
    try:
        settle()
        assert len(gc.get_objects()) < 1000
    finally:
        gc.unfreeze()
