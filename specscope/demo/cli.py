"""`specscope demo`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Describe the verb."""
    parser = subparsers.add_parser(
        "demo",
        help="everything on one machine, ending with verdicts",
        description="Runs the service, the sidecar and the bundled engine, measures four kinds of "
        "text under two loads with every draft length, and says where speculation pays.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("specscope-demo"), help="folder of the store and report"
    )
    parser.add_argument("--quick", action="store_true", help="one minute, thinner evidence")
    parser.add_argument(
        "--seed", type=int, help="draws prompts, seeds and orders; random if absent"
    )
    parser.add_argument("--json", action="store_true", help="print report.json instead of a table")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Run it, write the report, print the verdicts."""
    from rich.console import Console

    from specscope.demo.plan import FULL, QUICK
    from specscope.demo.progress import Progress
    from specscope.demo.run import run as run_demo
    from specscope.report.render import write
    from specscope.report.terminal import show

    size = QUICK if args.quick else FULL
    progress = Progress(Console(stderr=True), size)
    report = run_demo(args.out, size, progress, seed=args.seed)
    page = write(report, args.out)
    console = Console()
    if args.json:
        console.file.write((args.out / "report.json").read_text())
        return 0
    show(report, console)
    console.print(f"\nreport: {page.resolve()}", highlight=False, soft_wrap=True)
    return 0
