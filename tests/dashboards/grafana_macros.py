"""What Grafana and its ClickHouse data source make of a panel's SQL before they send it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

ALL = "$__all"


def expanded(
    sql: str, begin_ns: int, end_ns: int, chosen: Mapping[str, Sequence[str] | str]
) -> str:
    """The text that reaches the store. chosen: values of each variable, or ALL."""
    sql = _conditional(sql, chosen)
    sql = re.sub(
        r"\$__timeFilter\((\w+)\)",
        lambda m: (
            f"{m[1]} >= toDateTime({begin_ns // 10**9}) AND {m[1]} <= toDateTime({end_ns // 10**9})"
        ),
        sql,
    )
    for name, values in chosen.items():
        quoted = ", ".join("'" + value.replace("'", "\\'") + "'" for value in values)
        sql = sql.replace(f"${{{name}:singlequote}}", quoted)
    assert "$" not in sql, sql
    return sql


def _conditional(sql: str, chosen: Mapping[str, Sequence[str] | str]) -> str:
    """$__conditionalAll(condition, $variable): no condition where all are chosen."""
    name = "$__conditionalAll("
    while (start := sql.find(name)) >= 0:
        depth, end = 1, start + len(name)
        while depth:
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            end += 1
        condition, variable = sql[start + len(name) : end - 1].rsplit(", $", 1)
        sql = sql[:start] + ("1=1" if chosen[variable] == ALL else condition) + sql[end:]
    return sql
