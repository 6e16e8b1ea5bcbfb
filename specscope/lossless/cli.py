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
        help="check that speculation does not change outputs",
        description="Sends the same prompts with greedy sampling to a server without speculation, "
        "twice, and to a server with speculation. Exits with 3 if the outputs of the two servers "
        "differ more than those of the first server differ from each other.",
    )
    parser.add_argument("baseline", type=address, help="server without speculation")
    parser.add_argument(
        "speculative", type=address, help="server with speculation and the same target model"
    )
    parser.add_argument(
        "--prompts", type=Path, help="file of JSON lines (default: bundled prompts)"
    )
    parser.add_argument("--most", type=count, help="most prompts to send (default: all)")
    parser.add_argument(
        "--max-tokens", type=count, default=128, help="longest output (default: %(default)s)"
    )
    parser.add_argument(
        "--concurrency",
        type=count,
        default=8,
        help="requests at once in the second and third run (default: %(default)s)",
    )
    parser.add_argument("--model", help="model name to request (default: the server's first)")
    parser.add_argument(
        "--speculative-model", help="model name at the speculative server (default: --model)"
    )
    parser.add_argument(
        "--logit-error",
        type=float,
        help="difference in log-probability that rounding may cause (default: measured)",
    )
    parser.add_argument(
        "--timeout-s",
        type=positive,
        default=300.0,
        help="longest wait for one answer (default: 300)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def address(text: str) -> str:
    """A server's base address."""
    if not text.startswith(("http://", "https://")):
        raise ArgumentTypeError(f"{text!r} is not an address such as http://host:8000")
    return text


def run(args: Namespace) -> int:
    """Ask, compare, print. Unsettled if outputs differ, or if the answers cannot tell."""
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
    asked = ask(plan, read_prompts(args.prompts, args.most), args.progress)
    found = judge(asked.compared, args.logit_error)
    text = json.dumps(as_json(plan, asked, found), indent=1, allow_nan=False)
    sys.stdout.write((text if args.json else "\n".join(lines(plan, asked, found))) + "\n")
    return ExitCode.of_answer(found.state not in ("differs", "undecided"))
