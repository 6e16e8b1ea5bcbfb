"""Check one batch from a sidecar for the store.

Rows that are unreadable, or that the store cannot keep, are refused: counted, written as a loss,
and acknowledged with the rest. So a wrong clock or a faulty sidecar never blocks a queue. An
unknown column is counted and dropped; a missing column is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from specscope.service.decode import Claim, claims, decoded
from specscope.store.ledger import Source
from specscope.store.tables import LAYOUTS
from specscope_agent.schemas import schema

FUTURE_NS = 3600 * 10**9  # clocks of machines differ by seconds, by an hour where one is wrong
DAY_NS = 86_400 * 10**9
# Sidecars send these alone. The ledger, assessments and events are ours to write; policies come
# from operators, by a call of their own. In the order that they are stored in: rounds after the
# parts that are made of them, see `overlap`.
ACCEPTED = ("boot", "request_part", "request", "round", "device", "loss")
NUMBERED_BY = {"round": "seq", "request": "seq", "request_part": "first_seq"}


class Met(NamedTuple):
    """Rows of one table that an interrupted insert left in the store, with their earliest and
    latest time; ns since 1970."""

    rows: int
    first_at: int
    last_at: int

    def joined(self, other: Met) -> Met:
        return Met(
            self.rows + other.rows,
            min(self.first_at, other.first_at),
            max(self.last_at, other.last_at),
        )


@dataclass(slots=True)
class RefusedRows:
    """Refused rows of a batch; an interrupted attempt may have stored some of them.

    rows: those that the store lacks, as far as is known
    """

    loss: dict[str, Any]
    """Their loss, without how many they are."""
    rows: pa.Table
    asked: bool = False
    """Whether the store was asked for them."""

    def as_loss(self) -> dict[str, Any]:
        """Their row of `loss`."""
        table = self.loss["table"]
        return self.loss | {
            "count": self.rows.num_rows,
            "first_seq": _first(table, self.rows),
        }


@dataclass(slots=True)
class Admitted:
    """A batch ready for the store: rows by table, and refused rows."""

    source: Source
    number: int
    first_seq: int
    next_seq: int
    tables: dict[str, pa.Table] = field(default_factory=dict)
    refused: int = 0
    """Rows; a table that cannot be read counts as one."""
    refusals: dict[str, int] = field(default_factory=dict)
    """The same by reason, without rows that the store turns out to have."""
    doubtful: list[RefusedRows] = field(default_factory=list)
    unknown_columns: int = 0
    met: dict[str, Met] = field(default_factory=dict)
    """Rows by table that the store has although this batch does not bring them."""
    cut: bool = False
    """Whether its losses leave out the records that the store has."""
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the greatest time of each table's rows, if its age counts; ns since 1970."""

    def refuse(
        self,
        table: str,
        reason: str,
        count: int | None,
        detail: str,
        first: int | None,
        now: int,
        rows: pa.Table | None = None,
    ) -> None:
        """Count refused rows, and add a loss for them.

        rows: the rows, if an interrupted attempt may have stored them
        """
        self.refused += count or 1
        self.refusals[reason] = self.refusals.get(reason, 0) + (count or 1)
        loss = self.source._asdict() | {
            "lost_at": now,
            "table": table,
            "reason": reason,
            "first_seq": first,
            "count": count,
            "number": self.number,
            "detail": detail,
        }
        if rows is None:
            self.add_losses([loss])
        else:
            self.doubtful.append(RefusedRows(loss, rows))

    def refuse_table(self, table: str, detail: str, now: int) -> None:
        """Refuse one table's rows that the store itself cannot read."""
        rows = self.tables.pop(table)
        self.refuse(table, "refused", rows.num_rows, detail, None, now, rows)

    def refuse_all(self, detail: str, now: int) -> None:
        """Refuse all records of a batch that cannot be read."""
        count = self.next_seq - self.first_seq or None
        self.refuse("ring", "refused", count, detail, self.first_seq, now)

    def add_losses(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows of `loss` to those of the batch."""
        added = pa.Table.from_pylist(rows, schema("loss"))
        before = self.tables.get("loss")
        self.tables["loss"] = added if before is None else pa.concat_tables([before, added])

    def losses(self) -> pa.Table | None:
        """Rows of `loss`, also for refused rows; None if there is none."""
        refused = [one.as_loss() for one in self.doubtful if one.rows.num_rows]
        rows = self.tables.get("loss")
        if not refused:
            return rows
        tables = [pa.Table.from_pylist(refused, schema("loss"))]
        return pa.concat_tables(tables if rows is None else [rows, *tables])

    def ledger(self, now: int) -> dict[str, Any]:
        """The ledger's row of this batch; it counts stored rows."""
        losses = self.losses()
        counts = {
            column: (self.tables[table].num_rows if table in self.tables else 0)
            + (self.met[table].rows if table in self.met else 0)
            for column, table in (
                ("rounds", "round"),
                ("request_parts", "request_part"),
                ("requests", "request"),
            )
        }
        return {
            "replica": self.source.replica,
            "boot": self.source.boot,
            "number": self.number,
            "first_seq": self.first_seq,
            "next_seq": self.next_seq,
            "stored_at": now,
            **counts,
            "losses": 0 if losses is None else losses.num_rows,
            **self._times(),
        }

    def _times(self) -> dict[str, int | None]:
        """The range of its rows' times, so that rollups know their work without reading rows."""
        covered = [(table, ends) for table, ends in self.ends.items() if table in self.tables]
        covered += [(table, (met.first_at, met.last_at)) for table, met in self.met.items()]
        began = [ends for table, ends in covered if table in ("round", "request_part")]
        admitted = [first for table, (first, _) in covered if table == "request"]
        return {
            "first_at": min((first for first, _ in began), default=None),
            "last_at": max((last for _, last in began), default=None),
            "admitted_at": min(admitted, default=None),
        }


def admit(batch: Any, now: int, claimed: Sequence[Claim] | None = None) -> Admitted:
    """Read a wire Batch; `now` in ns since 1970. Never raises: faulty rows are refused.

    claimed: `claims` of its tables, if already read
    """
    admitted = Admitted(
        Source(batch.source.replica, batch.source.boot),
        batch.number,
        batch.first_seq,
        batch.next_seq,
    )
    for part in claims(batch.tables) if claimed is None else claimed:
        first = batch.first_seq if part.name in NUMBERED_BY else None
        if part.name not in ACCEPTED:
            admitted.refuse(
                part.name[:64], "refused", None, part.fault or "no such table", first, now
            )
            continue
        try:
            rows = fit(decoded(part), part.name)
            admitted.unknown_columns += part.unknown
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            admitted.refuse(part.name, "refused", None, str(error)[:200], first, now)
            continue
        rows = _within_time(
            admitted, part.name, _of_its_source(admitted, part.name, rows, now), now
        )
        if rows.num_rows:
            held = admitted.tables.get(part.name)
            admitted.tables[part.name] = rows if held is None else pa.concat_tables([held, rows])
    for name, rows in admitted.tables.items():
        if LAYOUTS[name].time and rows.num_rows:
            admitted.ends[name] = ends_of(rows.column(LAYOUTS[name].time))
    return admitted


def fit(rows: pa.Table, table: str) -> pa.Table:
    """The rows with exactly the columns of their schema, in its order.

    Raises ValueError if a required column is missing or has NULL values.
    """
    wanted = schema(table)
    found = set(rows.column_names)
    columns = []
    for field_ in wanted:
        if field_.name in found:
            columns.append(rows.column(field_.name))
        elif pa.types.is_list(field_.type):
            columns.append(pa.array([[]] * rows.num_rows, field_.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field_.type))
        if not field_.nullable and _unknown(columns[-1]):
            missing = "has unknown values" if field_.name in found else "is missing"
            raise ValueError(f"column {field_.name} {missing}")
    return pa.Table.from_arrays(columns, schema=wanted)


def _unknown(column: Any) -> bool:
    """Whether a value, or one within an array, is NULL; the store would replace it by 0."""
    if column.null_count:
        return True
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.types.is_list(column.type) and any(c.flatten().null_count for c in chunks)


def kept_from(table: str, now: int) -> int | None:
    """The oldest time that the store keeps in a table; None if age does not count."""
    layout = LAYOUTS[table]
    return now - layout.days * DAY_NS if layout.days and layout.time else None


def _of_its_source(admitted: Admitted, table: str, rows: pa.Table, now: int) -> pa.Table:
    """The rows of the batch's own replica and boot; others are refused."""
    own = None
    for column, name in zip(("replica", "boot"), admitted.source, strict=True):
        if column in rows.column_names:
            equal = pc.equal(rows.column(column), name)
            own = equal if own is None else pc.and_(own, equal)
    # Of no rows at all, Arrow does not know whether all are.
    if own is None or not rows.num_rows or pc.all(own).as_py():
        return rows
    foreign = rows.filter(pc.invert(own))
    detail = "rows of another replica or boot than the batch's"
    admitted.refuse(table, "refused", foreign.num_rows, detail, _first(table, foreign), now)
    return rows.filter(own)


def _within_time(admitted: Admitted, table: str, rows: pa.Table, now: int) -> pa.Table:
    oldest = kept_from(table, now)
    if oldest is None or not rows.num_rows:
        return rows
    times = rows.column(LAYOUTS[table].time).cast(pa.int64())
    known = pc.and_(pc.greater_equal(times, oldest), pc.less_equal(times, now + FUTURE_NS))
    if pc.all(known).as_py():
        return rows
    lost = rows.filter(pc.invert(known))
    detail = f"times from {pc.min(times).as_py()} to {pc.max(times).as_py()} ns, now {now} ns"
    admitted.refuse(table, "clock", lost.num_rows, detail, None, now, lost)
    return rows.filter(known)


def ends_of(times: Any) -> tuple[int, int]:
    """The earliest and the latest of some times, in ns."""
    ends = pc.min_max(times)
    return ends["min"].value, ends["max"].value


def _first(table: str, rows: pa.Table) -> int | None:
    column = NUMBERED_BY.get(table)
    return pc.min(rows.column(column)).as_py() if column and rows.num_rows else None


def merged(batches: Iterable[Admitted]) -> Mapping[str, pa.Table]:
    """Merge the rows of many batches, one table each, in the order of storing."""
    by_table: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for name, rows in batch.tables.items():
            by_table.setdefault(name, []).append(rows)
    return {name: pa.concat_tables(by_table[name]) for name in sorted(by_table, key=ACCEPTED.index)}
