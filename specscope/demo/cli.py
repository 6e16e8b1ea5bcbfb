"""`specscope demo`."""

from __future__ import annotations

from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specscope.errors import MissingExtra, install_command


def add_parser(subparsers: Any) -> None:
    """Describe the verb."""
    parser = subparsers.add_parser(
        "demo",
        help="run everything on one machine, ending with verdicts",
        description="Runs the service, the sidecar and the bundled engine. Measures four kinds of "
        "text under two loads with several draft lengths, and says where speculation pays.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("specscope-demo"),
        help="folder for the store and the report (default: %(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="take one minute instead of six; intervals are wider"
    )
    parser.add_argument(
        "--seed", type=int, help="seed of prompts, samples and orders (default: random)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print report.json instead of the table"
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Run the demonstration, write its report and print the verdicts."""
    from rich.console import Console

    from specscope.demo.plan import FULL, QUICK
    from specscope.demo.progress import Progress
    from specscope.demo.run import run as run_demo
    from specscope.report.render import write
    from specscope.report.terminal import show

    if find_spec("torch") is None:  # the parent does without it, the engine does not
        raise MissingExtra(f"needs torch: {install_command('all')}")
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
