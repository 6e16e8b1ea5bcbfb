"""The ledger: the batches of each boot in the store, and those that the rollups count.

The table `batch` has a row for every stored batch. The table `position` summarises it, so a query
costs the same after 14 days as after one. It has the last batch without an earlier gap (`stored`),
the highest batch that any service has noted (`seen`), and the last batch up to which the rollups
count all (`rolled`). Numbers only rise, and no clock is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from specscope.store.connection import Store

STORED, SEEN, ROLLED = "stored", "seen", "rolled"
AT_ONCE = 200  # boots in one statement; each is a range of the primary key


class Source(NamedTuple):
    """One start of one serving process."""

    replica: str
    boot: str


class Position(NamedTuple):
    """The last batch (0 if there is none), and the next record number."""

    number: int
    next_seq: int


NOWHERE = Position(0, 0)


class Stretch(NamedTuple):
    """Batches of one boot: their highest number, and the range of their rows. Times in ns.

    undated: number of batches without times in the ledger (from an earlier version)
    """

    source: Source
    number: int
    from_seq: int
    first_at: int | None
    last_at: int | None
    admitted_at: int | None
    undated: int = 0

    def joined(self, other: Stretch) -> Stretch:
        """Join two stretches of one boot."""
        return Stretch(
            self.source,
            max(self.number, other.number),
            min(self.from_seq, other.from_seq),
            _known(min, self.first_at, other.first_at),
            _known(max, self.last_at, other.last_at),
            _known(min, self.admitted_at, other.admitted_at),
            self.undated + other.undated,
        )


SUMMED = """
SELECT replica, boot, number, next_seq FROM position FINAL
WHERE of = {of:String} AND (replica, boot) IN (
    SELECT arrayJoin(arrayZip({replicas:Array(String)}, {boots:Array(String)})))"""

# Batches without a gap between them, after those that `position` sums up.
RUNS = """
SELECT replica, boot, before, max(number) AS last, argMax(next_seq, number) AS next_seq
FROM (
    SELECT replica, boot, number, next_seq,
        toInt64(number)
            - row_number() OVER (PARTITION BY replica, boot ORDER BY number) AS before
    FROM batch FINAL WHERE {beyond}
)
GROUP BY replica, boot, before
ORDER BY replica, boot, before"""

RAISE = """
INSERT INTO position (replica, boot, of, number, next_seq)
SELECT row.1, row.2, {of:String}, row.3, row.4 FROM (
    SELECT arrayJoin(arrayZip({replicas:Array(String)}, {boots:Array(String)},
        {numbers:Array(UInt64)}, {next_seqs:Array(UInt64)})) AS row)"""

COUNTED = "SELECT sum(number) AS n FROM position FINAL WHERE of = 'seen'"

BEHIND = """
SELECT b.replica AS replica, b.boot AS boot
FROM (SELECT replica, boot, max(number) AS last FROM batch GROUP BY replica, boot) AS b
LEFT ANY JOIN (SELECT replica, boot, number FROM position FINAL WHERE of = 'rolled') AS p
    ON b.replica = p.replica AND b.boot = p.boot
WHERE b.last > p.number"""

STRETCHES = """
SELECT replica, boot, max(number) AS last, min(first_seq) AS from_seq,
    toUnixTimestamp64Nano(min(first_at)) AS first, toUnixTimestamp64Nano(max(last_at)) AS last_at,
    toUnixTimestamp64Nano(min(admitted_at)) AS admitted,
    countIf(isNull(first_at) AND rounds + request_parts + requests > 0) AS undated
FROM batch FINAL WHERE {beyond}
GROUP BY replica, boot, intDiv(toUnixTimestamp64Nano(first_at), 3600000000000)"""


def positions(store: Store, sources: Iterable[Source]) -> Mapping[Source, Position]:
    """The position at which each boot's sidecar resumes; NOWHERE for an unknown boot."""
    found: dict[Source, Position] = {}
    for some in _chunks(list(dict.fromkeys(sources))):
        known = summed(store, some, STORED)
        found |= {source: known.get(source, NOWHERE) for source in some}
        beyond, params = _beyond({source: found[source].number for source in some})
        met: set[Source] = set()
        for row in store.rows(RUNS.replace("{beyond}", beyond), params):
            source = _source(row)
            # A ledger that begins after batch 1 was cut off by age: what it begins with follows
            # on batches that were acknowledged long ago.
            follows = source not in known or row["before"] == found[source].number
            if source not in met and follows:
                found[source] = Position(row["last"], row["next_seq"])
            met.add(source)
    return found


def summed(store: Store, sources: Sequence[Source], of: str) -> dict[Source, Position]:
    """The rows of `position` for some boots."""
    params = {"replicas": [s.replica for s in sources], "boots": [s.boot for s in sources]}
    return {
        _source(row): Position(row["number"], row["next_seq"])
        for row in store.rows(SUMMED, {"of": of, **params})
    }


def seen(store: Store) -> int:
    """Total of batches that all services have noted."""
    return int(store.rows(COUNTED)[0]["n"])


def behind(store: Store) -> list[Source]:
    """Boots with batches outside the rollups."""
    return [_source(row) for row in store.rows(BEHIND)]


def stretches(store: Store, after: Mapping[Source, int]) -> list[Stretch]:
    """Batches of each boot after a number, by hour."""
    found = []
    for some in _chunks(list(after)):
        beyond, params = _beyond({source: after[source] for source in some})
        found += [
            Stretch(
                _source(row), row["last"], row["from_seq"], row["first"], row["last_at"],
                row["admitted"], row["undated"],
            )
            for row in store.rows(STRETCHES.replace("{beyond}", beyond), params)
        ]  # fmt: skip
    return found


def write(store: Store, of: str, numbers: Mapping[Source, Position]) -> None:
    """Raise positions; a lower number changes nothing."""
    if not numbers:
        return
    params = {
        "of": of,
        "replicas": [source.replica for source in numbers],
        "boots": [source.boot for source in numbers],
        "numbers": [position.number for position in numbers.values()],
        "next_seqs": [position.next_seq for position in numbers.values()],
    }
    store.command(RAISE, params)


def _known(choose: Callable[[list[int]], int], *values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _source(row: Mapping[str, Any]) -> Source:
    return Source(row["replica"], row["boot"])


def _chunks(sources: Sequence[Source]) -> Iterator[Sequence[Source]]:
    for begin in range(0, len(sources), AT_ONCE):
        yield sources[begin : begin + AT_ONCE]


def _beyond(after: Mapping[Source, int]) -> tuple[str, dict[str, Any]]:
    """A condition on `batch` (a key range for each boot), and its parameters."""
    ranges: list[str] = []
    params: dict[str, Any] = {}
    for i, (source, number) in enumerate(after.items()):
        ranges.append(
            f"(replica = {{r{i}:String}} AND boot = {{b{i}:String}} AND number > {{n{i}:UInt64}})"
        )
        params |= {f"r{i}": source.replica, f"b{i}": source.boot, f"n{i}": number}
    return " OR ".join(ranges), params
