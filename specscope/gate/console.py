"""Helpers of the gate's commands: the store, its options, and printing."""

from __future__ import annotations

import getpass
import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specscope.errors import InputError, UsageError
from specscope.evidence.read import Evidence, read
from specscope.gate.recommend import Recommendation, recommendation
from specscope.gate.replayed import read_replays, replayed_cells
from specscope.policy.remote import Remote
from specscope.policy.table import SCHEMA, GateTable, read_table, unknown_keys
from specscope.settings import store_dsn
from specscope.store.connection import Store


@contextmanager
def open_store(args: Namespace) -> Iterator[Store]:
    """Open the chosen store. Raises StoreError if there is none."""
    with Store.open(store_dsn(os.environ, args.store), create=False) as store:
        yield store


def read_store(store: Store, args: Namespace) -> Evidence:
    """Read policies and evidence of the chosen period."""
    return read(store, time.time_ns() - args.since)


def advise(args: Namespace, evidence: Evidence) -> Recommendation:
    """Recommend a table, from the assessment and the given replays."""
    return recommendation(
        evidence,
        now=time.time_ns(),
        default_k=args.default_k,
        allowances=dict(args.tpot_ms),
        closed_loop=args.closed_loop,
        epoch=args.epoch,
        replays=read_replays(args.accept_replayed),
    )


def in_force(args: Namespace, evidence: Evidence) -> GateTable:
    """The table in force, or the draft length that the options name."""
    return evidence.table or GateTable((), args.default_k or 0)


def wanted_table(args: Namespace, evidence: Evidence) -> GateTable:
    """The table of the given file, or the recommended one.

    Raises InputError for an invalid file, UsageError for a table based on a replay that nobody
    accepted.
    """
    if args.table is None:
        return advise(args, evidence).new
    table = read_table_file(args.table)
    resting = replayed_cells(table, in_force(args, evidence))
    if resting and not args.accept_replayed:
        raise UsageError(
            f"{args.table}: {len(resting)} of its cells are based on a replay ({resting[0]}); "
            "accept it with --accept-replayed FILE, the result of that replay"
        )
    read_replays(args.accept_replayed)
    return table


def read_table_file(path: Path) -> GateTable:
    """Read a table file. A file with neither cells nor a default is an error, not a table of k =
    0."""
    try:
        body = json.loads(path.read_text())
        if not isinstance(body, dict) or not body.keys() & {"table", "default_k"}:
            raise InputError(f"{path} is not a table: it has neither `table` nor `default_k`")
        if body.get("schema", SCHEMA) != SCHEMA:
            raise InputError(f"{path} is not a table: its schema is not {SCHEMA}")
        if unknown := unknown_keys(body):
            raise InputError(f"{path} is not a table: a cell has the unknown key {unknown[0]!r}")
        return read_table(body)
    except (OSError, ValueError, RecursionError, UsageError) as error:
        raise InputError(f"{path} is not a table: {error}") from error


def chosen_service(args: Namespace, store: Store) -> Remote | None:
    """The service that applies policies; None to write the store directly."""
    return Remote.chosen(os.environ, args.service, store.dsn)


def author(args: Namespace) -> str:
    """The author of a change: --author, or the user of this process."""
    if args.author:
        return str(args.author)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user that the system has no name for
        return ""


def say(args: Namespace, lines: Sequence[str], plain: Mapping[str, Any]) -> int:
    """Print lines, or with --json their values. Returns the exit status."""
    text = json.dumps(plain, indent=1, allow_nan=False) if args.json else "\n".join(lines)
    sys.stdout.write(text + "\n")
    return 0


def aside(line: str) -> None:
    """Print a line for a person to stderr."""
    sys.stderr.write(line + "\n")


def write_json(path: Path, plain: Mapping[str, Any]) -> None:
    """Raises UsageError if it cannot be written."""
    try:
        path.write_text(json.dumps(plain, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error
