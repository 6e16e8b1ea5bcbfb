"""Rows of `loss`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from specscope_agent.schemas import schema
from specscope_agent.source import Source

Row = dict[str, Any]


@dataclass(slots=True)
class Losses:
    """Losses of one source, collected during a batch.

    lost_at: time of detection, ns since 1970
    """

    source: Source
    lost_at: int
    rows: list[Row] = field(default_factory=list)

    def add(
        self,
        table: str,
        reason: str,
        first_seq: int | None,
        count: int | None,
        detail: str = "",
        at: int | None = None,
        number: int | None = None,
    ) -> None:
        """Add a loss; `reason` is one of LOSS_REASONS.

        at: time of the loss, if known. number: number of the batch that held the records
        """
        self.rows.append(
            {
                **self.source._asdict(),
                "lost_at": self.lost_at if at is None else at,
                "table": table,
                "reason": reason,
                "first_seq": first_seq,
                "count": count,
                "number": number,
                "detail": detail,
            }
        )

    def table(self) -> pa.Table:
        return rows_table("loss", self.rows)


def rows_table(name: str, rows: Sequence[Row]) -> pa.Table:
    """A few rows by column name as a table; a missing column is null, a missing array empty."""
    columns = schema(name)
    empty: Row = {field.name: [] for field in columns if pa.types.is_list(field.type)}
    return pa.Table.from_pylist([empty | row for row in rows], columns)
