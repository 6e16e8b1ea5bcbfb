"""Convert ring records into rows of the stored tables, without state between batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from specscope_agent.arrays import finite
from specscope_agent.loss import Losses
from specscope_agent.origin import Origin
from specscope_agent.parts import part_columns
from specscope_agent.payloads import Payloads
from specscope_agent.requests import request_columns
from specscope_agent.rounds import round_columns
from specscope_agent.schemas import schema
from specscope_agent.windows import Window, enclosing
from specscope_hook.ring import OTHER, ROUND, Gap, RawRecord


def transpose(
    records: Sequence[RawRecord],
    gaps: Sequence[Gap],
    origin: Origin,
    *,
    windows: Sequence[Window] = (),
    losses: Losses,
) -> dict[str, pa.Table]:
    """Rows of round, request_part and request; empty tables are left out.

    records: records in the order of their numbers
    windows: device samples that may enclose some of the rounds

    Unreadable records and gaps are added to `losses`.
    """
    for gap in gaps:
        losses.add("ring", gap.reason, gap.first_seq, gap.count)
    rounds, requests = whole(records, origin.payloads, losses)
    tables: dict[str, pa.Table] = {}
    if rounds:
        tables |= _round_tables(rounds, origin, windows)
    if requests:
        tables["request"] = _request_table(requests, origin, losses)
    return tables


def whole(
    records: Sequence[RawRecord], payloads: Payloads, losses: Losses | None = None
) -> tuple[list[RawRecord], list[RawRecord]]:
    """Rounds and requests of the right length; the others are added to `losses`."""
    rounds: list[RawRecord] = []
    requests: list[RawRecord] = []
    for record in records:
        if payloads.fits(record):
            (rounds if record.kind == ROUND else requests).append(record)
        elif losses:
            losses.add("ring", "corrupt", record.seq, 1, f"record of kind {record.kind}")
    return rounds, requests


def _round_tables(
    records: Sequence[RawRecord], origin: Origin, windows: Sequence[Window]
) -> dict[str, pa.Table]:
    rounds = origin.payloads.rounds(records)
    columns = round_columns(rounds, origin.names, origin.card)
    dram, window_ms = enclosing(windows, rounds.scalars["started_at"])
    columns |= {"dram_active": finite(dram), "dram_window_ms": finite(window_ms)}
    tables = {"round": table("round", columns, origin.boot)}
    if len(rounds.row):
        tables["request_part"] = table(
            "request_part", part_columns(rounds, origin.names), origin.boot
        )
    return tables


def _request_table(records: Sequence[RawRecord], origin: Origin, losses: Losses) -> pa.Table:
    seq, values = origin.payloads.requests(records)
    if origin.classes_full:
        # A request counts once, at its admission.
        unnamed = (values["class_"] == OTHER) & (values["ended_at"] == 0)
        if unnamed.any():
            losses.add("request", "classes_full", int(seq[unnamed][0]), int(unnamed.sum()))
    return table("request", request_columns(seq, values, origin.names), origin.boot)


def table(name: str, columns: Mapping[str, Any], boot: Mapping[str, Any]) -> pa.Table:
    """Columns as a table of the stored schema, with its source. Raises ArrowInvalid for a value
    that does not fit its column."""
    rows = len(next(iter(columns.values())))
    source = {key: pa.repeat(boot[key], rows) for key in ("replica", "boot")}
    fields = schema(name)
    return pa.table(
        [_as_type({**source, **columns}[f.name], f.type) for f in fields], schema=fields
    )


def _as_type(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    # Sums of a round's values, which are counted in bytes: they fit. A checked cast by Arrow
    # would take ten times as long.
    return pa.array(np.ascontiguousarray(values, kind.to_pandas_dtype()))
