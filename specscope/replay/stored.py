"""Write a replay's verdicts as rows of table `assessment`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from specscope.assess import verdict_row
from specscope.errors import InputError, UsageError
from specscope.policy.remote import Remote
from specscope.replay import result as results
from specscope.replay.judge import Replayed
from specscope.replay.result import ReplayResult
from specscope.settings import store_dsn
from specscope.store.connection import Store

DESIGN = "replay"
MOST_VERDICTS = 65  # 64 classes, and all traffic
MOST_CHARACTERS = 256  # of a name


def verdict_rows(result: ReplayResult) -> list[dict[str, Any]]:
    """A row per class, then all traffic; `pairs` is unknown, because a replay counts requests.

    Raises InputError for more verdicts or longer names than a replay can have.
    """
    names = [*result.arms, result.epoch, *(_class(one) for one in result.judged.verdicts)]
    if len(result.judged.verdicts) > MOST_VERDICTS or max(map(len, names)) > MOST_CHARACTERS:
        raise InputError(
            f"a replay has at most {MOST_VERDICTS} verdicts and names of {MOST_CHARACTERS} "
            "characters"
        )
    facts = results.as_json(result)
    told = {name: facts[name] for name in ("arms", "urls", "trace_sha256", "how")}
    rows = []
    for one in result.judged.verdicts:
        row = verdict_row(one.verdict, DESIGN)
        body = {**json.loads(row["body"]), "replay": {**told, "requests": one.requests}}
        made = {"assessed_at": result.created_at, "since": result.created_at, "tenant": ""}
        rows.append({**row, **made, "epoch": result.epoch, "pairs": None, "policy": None,
                     "body": json.dumps(body)})  # fmt: skip
    return rows


def keep(store: Store, result: ReplayResult) -> int:
    """Add a replay's verdicts and return their number. A repeated result is stored once.

    Raises InputError as `verdict_rows` does, StoreError if the store cannot be written.
    """
    rows = verdict_rows(result)
    store.add("assessment", rows)
    return len(rows)


def keeper(store_given: str | None, service: str | None) -> Callable[[ReplayResult], int]:
    """A function that writes a result into the given store, through its service if it has one.

    Raises UsageError at once, before a long replay, if the store cannot be written.
    """
    dsn = store_dsn(os.environ, store_given)
    remote = Remote.chosen(os.environ, service, dsn)
    if remote is not None:
        return lambda result: remote.keep(json.dumps(results.as_json(result)))
    if dsn.startswith("http"):
        raise UsageError(
            "a read endpoint accepts no rows: name its service too (--service host:port or "
            "SPECSCOPE_SERVICE)"
        )
    Store.open(dsn, create=False).close()

    def add(result: ReplayResult) -> int:
        with Store.open(dsn, create=False) as store:
            return keep(store, result)

    return add


def _class(one: Replayed) -> str:
    return one.verdict.segment.class_ or ""
