"""`specscope lossless`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from specscope.arguments import count, positive
from specscope.errors import ExitCode


def add_parser(subparsers: Any) -> None:
    """Describe the verb."""
    parser: ArgumentParser = subparsers.add_parser(
        "lossless",
        help="whether speculation changes what requests get",
        description="Sends the same prompts greedily to a server without speculation, twice, and "
        "to one with it, and compares the outputs. Exit code 3 if they differ beyond what the "
        "first server differs from itself.",
    )
    parser.add_argument("baseline", type=address, help="server without speculation")
    parser.add_argument("speculative", type=address, help="server with it, of the same target")
    parser.add_argument("--prompts", type=Path, help="JSON lines; bundled ones by default")
    parser.add_argument("--most", type=count, help="prompts, evenly spread; all by default")
    parser.add_argument("--max-tokens", type=count, default=128, help="of an output")
    parser.add_argument("--concurrency", type=count, default=8, help="of the crowded runs")
    parser.add_argument("--model", help="name to ask for; the server's first by default")
    parser.add_argument("--speculative-model", help="the same of the speculative server")
    parser.add_argument(
        "--logit-error", type=float, help="difference that rounding may make; measured by default"
    )
    parser.add_argument("--timeout-s", type=positive, default=300.0, help="of one answer")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def address(text: str) -> str:
    """A server's base address."""
    if not text.startswith(("http://", "https://")):
        raise ArgumentTypeError(f"{text!r} is not an address such as http://host:8000")
    return text


def run(args: Namespace) -> int:
    """Ask, compare, print. Unsettled when outputs differ, or the answers do not tell."""
    from specscope.evaluate.outputs.divergence import judge
    from specscope.lossless.ask import Plan, ask
    from specscope.lossless.show import as_json, lines
    from specscope.prompts import read_prompts

    plan = Plan(
        baseline=args.baseline,
        speculative=args.speculative,
        most_tokens=args.max_tokens,
        concurrency=args.concurrency,
        baseline_model=args.model,
        speculative_model=args.speculative_model or args.model,
        timeout_s=args.timeout_s,
    )
    asked = ask(plan, read_prompts(args.prompts, args.most), _progress)
    found = judge(asked.compared, args.logit_error)
    text = json.dumps(as_json(plan, asked, found), indent=1, allow_nan=False)
    sys.stdout.write((text if args.json else "\n".join(lines(plan, asked, found))) + "\n")
    return ExitCode.of_answer(found.state not in ("differs", "undecided"))


def _progress(name: str, done: int, of: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{name}: {done} of {of}" + ("\r\x1b[K" if done == of else ""))
        sys.stderr.flush()
