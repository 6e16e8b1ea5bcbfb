"""`specscope report`."""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

UNITS_NS = {"h": 3600 * 10**9, "d": 24 * 3600 * 10**9, "w": 7 * 24 * 3600 * 10**9}


def add_parser(subparsers: Any) -> None:
    """Describe the verb."""
    parser = subparsers.add_parser(
        "report",
        help="the weekly report",
        description="Writes report.html, report.md and report.json from a store's rollups.",
    )
    parser.add_argument("--store", help="destination; SPECSCOPE_STORE by default")
    parser.add_argument("--since", type=period, default="7d", help="how far back: 24h, 7d, 4w")
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder to write to")
    parser.add_argument("--json", action="store_true", help="print report.json too")
    parser.set_defaults(run=run)


def period(text: str) -> int:
    """A length of time such as 24h, 7d or 4w. [ns]"""
    match = re.fullmatch(r"([1-9]\d*)([hdw])", text)
    if not match:
        raise ArgumentTypeError(f"{text!r} is not a period such as 24h, 7d or 4w")
    return int(match[1]) * UNITS_NS[match[2]]


def run(args: Namespace) -> int:
    """Collect, write, print the verdicts."""
    import os

    from rich.console import Console

    from specscope.report.collect import collect
    from specscope.report.render import write
    from specscope.report.terminal import show
    from specscope.settings import store_dsn
    from specscope.store import Store

    with Store.open(store_dsn(os.environ, args.store), create=False) as store:
        report = collect(store, title="Speculative decoding", since=time.time_ns() - args.since)
    page = write(report, args.out)
    console = Console()
    if args.json:
        console.file.write((args.out / "report.json").read_text())
        return 0
    show(report, console)
    console.print(f"\nreport: {page.resolve()}", highlight=False, soft_wrap=True)
    return 0
