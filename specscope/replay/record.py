"""Build a trace from the request rows of a store, which hold lengths and times but no prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specscope import queries
from specscope.errors import InputError
from specscope.queries.period import since_condition
from specscope.store.connection import Store

MOST = 10_000  # requests of a trace, unless more are asked for


def recorded(store: Store, since: int, most: int = MOST) -> list[dict[str, Any]]:
    """The first requests that began since a time in ns since 1970, as lines of a trace.

    Each asks for exactly the recorded number of output tokens. Raises InputError without requests,
    StoreError if the store cannot be read.
    """
    rows = store.rows(queries.ended_requests(since_condition("admitted_at", since), most))
    if not rows:
        raise InputError("no finished request in this period: nothing to record")
    begin = rows[0]["admitted_at"]
    return [_line(row, begin) for row in rows]


def _line(row: Mapping[str, Any], begin: int) -> dict[str, Any]:
    sampling = {"temperature": row["temperature"], "top_p": row["top_p"], "ignore_eos": True}
    line: dict[str, Any] = {
        "offset_s": round((row["admitted_at"] - begin) / 1e9, 6),
        "class": row["class"],
        "prompt_tokens": max(1, row["prompt_tokens"]),
        "max_tokens": max(1, row["output_tokens"]),
        "sampling": sampling,
    }
    if row["session"] is not None:
        line["session"] = f"{row['session']:016x}"
    return line
