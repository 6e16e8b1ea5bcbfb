"""A sidecar's greeting reads as much of the ledger after two weeks as after a minute."""

from __future__ import annotations

import chdb
import pytest

from specscope.store import ledger
from specscope.store.connection import Store
from specscope.store.ledger import STORED, Position, Source
from specscope.store.migrate import migrate

GRANULE = 8192  # rows that the engine reads at least
BOOTS = 4
HELLO = Source("r3", "b")


def fill(store, batches):
    store.command(
        "INSERT INTO batch (replica, boot, number, first_seq, next_seq, stored_at) "
        f"SELECT concat('r', toString(number % {BOOTS})), 'b', intDiv(number, {BOOTS}) + 1, "
        f"intDiv(number, {BOOTS}) * 9, intDiv(number, {BOOTS}) * 9 + 9, now64(9) "
        f"FROM numbers({BOOTS * batches})"
    )
    sources = [Source(f"r{number}", "b") for number in range(BOOTS)]
    ledger.write(store, STORED, dict.fromkeys(sources, Position(batches - 3, (batches - 3) * 9)))


def rows_read(path, call):
    """How many rows the engine reads for the statements that a call asks."""
    count = 0
    connection = chdb.connect(str(path))
    connection.query("USE specscope")

    class Counting:
        def rows(self, sql, params):
            nonlocal count
            texts = {name: as_text(value) for name, value in params.items()}
            count += connection.query(sql, "Null", params=texts).storage_rows_read()
            return store.rows(sql, params)

    with Store.open(f"chdb://{path}", create=False) as store:
        answer = call(Counting())
    connection.close()
    return count, answer


def as_text(value):
    return "[" + ", ".join(f"'{one}'" for one in value) + "]" if isinstance(value, list) else value


@pytest.mark.parametrize("batches", [25, 100_000])
def test_a_hello_reads_a_few_granules_however_long_the_ledger_is(tmp_path, batches):
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        fill(store, batches)

    read, found = rows_read(tmp_path / "store", lambda store: ledger.positions(store, [HELLO]))

    assert found[HELLO] == Position(batches, batches * 9)
    assert 0 < read <= 3 * GRANULE
