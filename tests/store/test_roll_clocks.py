"""Rollups count every stored row, whatever clocks, restarts and other services do.

The recount reads raw rows alone and shares no code with the rollups.
"""

from __future__ import annotations

import itertools
import time

import pytest
from store.test_roll import ledger_rows, put
from store.traffic import Traffic, table

from specscope.store import ledger
from specscope.store.connection import Store
from specscope.store.ledger import Position, Source
from specscope.store.migrate import migrate
from specscope.store.roll import Roller
from specscope.store.rollups import VERSION_BASE

SECOND = 10**9
HOUR = 3600 * SECOND


def truth(store):
    """Emitted tokens and rounds by minute, by hour and by block, from raw rows one by one."""
    rounds = {
        (row["replica"], row["boot"], row["seq"]): row
        for row in store.rows(
            "SELECT replica, boot, seq, toUnixTimestamp64Nano(started_at) AS at, emitted, pair, arm"
            " FROM round"
        )
    }
    minutes, blocks = {}, {}
    for row in rounds.values():
        for key, sums in (
            (row["at"] // (60 * SECOND), minutes),
            ((row["replica"], row["boot"], row["pair"], row["arm"]), blocks),
        ):
            seen = sums.setdefault(key, [0, 0])
            sums[key] = [seen[0] + 1, seen[1] + row["emitted"]]
    return minutes, blocks


def rolled(store):
    """The same from the rollups; the newest row of each key is found here, not by FINAL."""
    newest = {}
    for row in store.rows(
        "SELECT toUnixTimestamp64Nano(minute) AS at, replica, arm, k, rounds, emitted, version"
        " FROM minute_time ORDER BY version"
    ):
        newest[row["at"], row["replica"], row["arm"], row["k"]] = row
    minutes = {}
    for row in newest.values():
        seen = minutes.setdefault(row["at"] // (60 * SECOND), [0, 0])
        minutes[row["at"] // (60 * SECOND)] = [
            seen[0] + row["rounds"],
            seen[1] + row["emitted"],
        ]
    blocks = {}
    for row in store.rows(
        "SELECT replica, boot, pair, arm, rounds, emitted FROM block_time ORDER BY version"
    ):
        blocks[row["replica"], row["boot"], row["pair"], row["arm"]] = [
            row["rounds"],
            row["emitted"],
        ]
    return minutes, blocks


def settle(*rollers, now=None):
    """Two ticks of each, far enough apart that everything closes."""
    steady = time.monotonic_ns()
    for later in (0, 3600 * SECOND):
        for roller in rollers:
            roller.tick(now=now, steady=steady + later)


def half(traffic, second):
    """The first or the second half of the batches, as `put` takes them."""
    batches, rows = traffic.batches(), ledger_rows(traffic)
    middle = len(batches) // 2
    chosen = slice(middle, None) if second else slice(middle)
    return batches[chosen], rows[chosen]


def store_rows(store, batches, rows):
    for tables in batches:
        for name, part in tables.items():
            store.insert(name, part)
    store.insert("batch", table("batch", rows))
    return rows


def recovered(store):
    roller = Roller(store)
    roller.recover()
    return roller


def test_blocks_are_rolled_after_two_restarts_of_one_service(store):
    put(store, Traffic(seed=1))
    for _ in range(2):
        recovered(store).tick()  # the last block may still grow, and the service is killed

    settle(recovered(store))

    assert rolled(store) == truth(store)


def test_a_clock_that_is_set_back_leaves_no_stale_rollup(store):
    traffic, now = Traffic(seed=2), time.time_ns()
    first, second = half(traffic, False), half(traffic, True)
    roller = recovered(store)
    roller.note(store_rows(store, *first))
    settle(roller, now=now)

    roller.note(store_rows(store, *second))
    settle(roller, now=now - 5 * HOUR)

    assert rolled(store) == truth(store)


def test_a_clock_that_is_set_far_forward_ages_nothing(store):
    traffic, now, steady = Traffic(seed=2), time.time_ns(), time.monotonic_ns()
    roller = recovered(store)
    roller.tick(now=now, steady=steady)
    roller.note(store_rows(store, traffic.batches(), ledger_rows(traffic)))

    for later in (5 * SECOND, 3600 * SECOND):
        roller.tick(now=now + 100 * HOUR, steady=steady + later)

    assert rolled(store) == truth(store)


@pytest.mark.parametrize("skew", [30 * SECOND, -30 * SECOND, 5 * HOUR])
def test_two_services_whose_clocks_differ_leave_no_stale_rollup(store, skew):
    """Each gets half of one boot's batches, in turns, as a sidecar that changes its service."""
    traffic, now = Traffic(seed=3), time.time_ns()
    batches, rows = traffic.batches(), ledger_rows(traffic)
    one, other = recovered(store), recovered(store)

    for i in range(len(rows)):
        roller = other if i % 2 else one
        roller.note(store_rows(store, batches[i : i + 1], rows[i : i + 1]))
        roller.tick(now=now + (skew if i % 2 else 0), everything=i % 3 == 0)
    settle(other, now=now + skew)
    settle(one, now=now)

    assert rolled(store) == truth(store)


def test_batches_of_a_killed_service_are_rolled_by_its_peer_s_next_start(store):
    killed, peer = recovered(store), recovered(store)
    killed.note(store_rows(store, *half(Traffic(seed=4), False)))
    killed.tick(everything=False)
    peer.note(ledger_rows(Traffic(seed=5, boot="b1", replica="r1")))
    put(store, Traffic(seed=5, boot="b1", replica="r1"))
    settle(peer)  # its marks are its own boots', and hide nothing

    settle(recovered(store))

    assert rolled(store) == truth(store)


def test_a_peer_that_takes_over_a_boot_rolls_what_the_killed_service_stored(store):
    traffic = Traffic(seed=6)
    put(store, Traffic(seed=7, replica="r9"))
    peer = recovered(store)
    store_rows(store, *half(traffic, False))  # by the other, which is killed before it rolls

    peer.note(store_rows(store, *half(traffic, True)))
    settle(peer)

    assert rolled(store) == truth(store)


def test_a_ledger_without_times_is_recovered_from_the_rows(store):
    put(store, Traffic(seed=8), dated=False)

    settle(recovered(store))

    assert rolled(store) == truth(store)


def test_what_is_rolled_is_not_rolled_again_after_a_restart(store):
    put(store, Traffic(seed=9))
    settle(recovered(store))

    again = recovered(store).tick(everything=True)

    assert not any(again)


def test_a_version_is_the_number_of_batches_and_beats_every_clock(store):
    traffic = Traffic(seed=10)
    put(store, traffic)

    settle(recovered(store))

    (row,) = store.rows("SELECT DISTINCT version FROM minute_time")
    assert row["version"] == VERSION_BASE + len(traffic.batches()) > time.time_ns()


def test_positions_are_summed_up_and_gaps_are_seen(store):
    one, two, three = Source("r", "one"), Source("r", "two"), Source("r", "three")

    def rows(boot, numbers):
        return [
            {
                "replica": "r", "boot": boot, "number": n, "first_seq": 10 * n,
                "next_seq": 10 * n + 10, "rounds": 0, "request_parts": 0, "requests": 0,
                "losses": 0, "stored_at": time.time_ns(),
            }
            for n in numbers
        ]  # fmt: skip

    store.insert("batch", table("batch", rows("one", [1, 2, 3, 5, 6]) + rows("two", [7, 8])))
    before = ledger.positions(store, [one, two, three])
    ledger.write(store, ledger.STORED, {one: Position(3, 40), two: Position(8, 90)})
    store.insert("batch", table("batch", rows("two", [9, 11])))
    after = ledger.positions(store, [one, two, three])
    store.insert("batch", table("batch", rows("one", [4])))
    healed = ledger.positions(store, [one])

    assert before == {one: (3, 40), two: (8, 90), three: (0, 0)}
    assert after == {one: (3, 40), two: (9, 100), three: (0, 0)}
    assert healed == {one: (6, 70)}


def test_a_store_of_an_earlier_version_keeps_its_blocks_and_counts_on(tmp_path):
    """Its versions were times, and the age of its blocks was told by them."""
    old_ttl = "toDateTime(intDiv(version, 1000000000)) + INTERVAL 730 DAY"
    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        put(store, Traffic(seed=11), dated=False)
        settle(recovered(store))
        store.command("DROP TABLE position")
        for name in ("block_time", "block_part", "block_class"):
            store.command(f"ALTER TABLE {name} MODIFY TTL {old_ttl}")
            store.command(f"ALTER TABLE {name} DROP COLUMN computed_at")
        clock = time.time_ns()
        store.command(
            f"INSERT INTO block_time SELECT * REPLACE (1 AS rounds, {clock} AS version)"
            " FROM block_time"
        )
        store.command(
            f"ALTER TABLE block_time DELETE WHERE version != {clock} SETTINGS mutations_sync = 2"
        )

    with Store.open(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        settle(recovered(store))
        assert rolled(store) == truth(store)


def test_the_recount_sees_versions_that_fall(store, monkeypatch):
    """A planted fault: a later computation has a lower version."""
    falling = itertools.count(10**9, -1)
    monkeypatch.setattr(ledger, "seen", lambda _: next(falling))
    traffic, roller = Traffic(seed=12), recovered(store)
    for second in (False, True):
        roller.note(store_rows(store, *half(traffic, second)))
        settle(roller)

    assert rolled(store) != truth(store)
