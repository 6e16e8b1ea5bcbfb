"""`specscope report`."""

from __future__ import annotations

import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

from specscope.arguments import add_judgement, positive
from specscope.errors import ExitCode
from specscope.evaluate.verdict.verdict import Action


def add_parser(subparsers: Any) -> None:
    """Describe the verb."""
    parser = subparsers.add_parser(
        "report",
        help="write the weekly report",
        description="Writes report.html, report.md and report.json, and prints the verdicts.",
    )
    parser.add_argument("--store", help="the store (default: SPECSCOPE_STORE)")
    add_judgement(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("report"), help="folder to write to (default: %(default)s)"
    )
    parser.add_argument(
        "--price-per-hour",
        type=positive,
        help="price of a replica, in your currency (default: the price in its engine's settings)",
    )
    parser.add_argument(
        "--send",
        metavar="URL",
        help="webhook for a message with the verdicts, compatible with Slack "
        "(default: SPECSCOPE_REPORT_SEND)",
    )
    parser.add_argument(
        "--link", metavar="URL", help="address of the whole report, for that message"
    )
    parser.add_argument(
        "--json", action="store_true", help="print report.json instead of the table"
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Collect the report, write it, print its verdicts and send them. Unsettled if no verdict
    decides.

    Raises ServiceError if the webhook refused the message; the report is written before that.
    """
    import os

    from rich.console import Console

    from specscope.report.collect import STEPS, collect
    from specscope.report.render import write
    from specscope.report.send import message, send, webhook_host
    from specscope.report.terminal import show
    from specscope.settings import store_dsn
    from specscope.store.connection import Store

    webhook = args.send or os.environ.get("SPECSCOPE_REPORT_SEND")
    if webhook:
        webhook_host(webhook)  # said before minutes of work
    progress = partial(args.progress, "report", of=STEPS + 1)
    with Store.open(store_dsn(os.environ, args.store), create=False) as store:
        report = collect(
            store,
            title="Speculative decoding",
            since=time.time_ns() - args.since,
            default_k=args.default_k,
            allowances=dict(args.tpot_ms),
            closed_loop=args.closed_loop,
            price_per_hour=args.price_per_hour,
            progress=progress,
        )
    page = write(report, args.out)
    progress(STEPS + 1)
    console = Console()
    if args.json:
        console.file.write((args.out / "report.json").read_text())
    else:
        show(report, console)
        console.print(f"\nreport: {page.resolve()}", highlight=False, soft_wrap=True)
    if webhook:
        send(message(report, args.link), webhook)
    return ExitCode.of_answer(any(Action(row.action).settles for row in report.segments))
