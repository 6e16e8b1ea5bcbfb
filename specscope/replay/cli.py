"""`specscope replay`."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from specscope.arguments import PERIOD, count, period, positive, whole
from specscope.errors import ExitCode


def add_parser(subparsers: Any) -> None:
    """Describe the verb."""
    parser: ArgumentParser = subparsers.add_parser(
        "replay",
        help="A/B of two endpoints on one trace",
        description="Sends one trace to two OpenAI-compatible endpoints and compares them. With "
        "--record it writes a trace from a store's requests instead.",
    )
    parser.add_argument("trace", type=Path, help="JSON lines, see docs/replay.md")
    parser.add_argument(
        "--a", type=named_address, metavar="[ARM=]URL", help="the baseline, as k0=http://..."
    )
    parser.add_argument(
        "--b", type=named_address, metavar="[ARM=]URL", help="compared, as k4=http://..."
    )
    parser.add_argument("--parts", type=count, default=10, help="of the trace; 10 by default")
    parser.add_argument("--passes", type=count, default=1, help="times that the trace is run")
    parser.add_argument(
        "--speed", type=positive, default=1.0, help="of arrivals; 2 is twice as fast"
    )
    parser.add_argument(
        "--concurrency", type=count, help="so many requests in flight instead of the arrivals"
    )
    parser.add_argument(
        "--together", action="store_true", help="both at once: only where they share nothing"
    )
    parser.add_argument("--model", help="name to ask for; the endpoint's first by default")
    parser.add_argument("--warm-up", type=whole, default=2, help="requests before any counts")
    parser.add_argument("--timeout-s", type=positive, default=300.0, help="without a byte")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the endpoints")
    parser.add_argument("--epoch", default="", help="of the engine, where it is in the store too")
    parser.add_argument("--out", type=Path, help="write the result for `gate --accept-replayed`")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--record", action="store_true", help="write the trace from a store")
    parser.add_argument("--store", help="to record from; SPECSCOPE_STORE by default")
    parser.add_argument("--since", type=period, default=PERIOD, help="how far back to record")
    parser.add_argument("--most", type=count, default=10_000, help="requests to record")
    parser.set_defaults(run=run)


def named_address(text: str) -> tuple[str, str]:
    """An arm's name, empty where none is given, and an address."""
    arm, equals, url = text.partition("=")
    if not equals or "/" in arm:
        arm, url = "", text
    if not url.startswith(("http://", "https://")):
        raise ArgumentTypeError(f"{text!r} is not an address such as http://host:8000")
    return arm, url


def run(args: Namespace) -> int:
    """Record, or replay, judge and print."""
    return _record(args) if args.record else _replay(args)


def _record(args: Namespace) -> int:
    import os

    from specscope.replay.record import recorded
    from specscope.replay.trace import write_trace
    from specscope.settings import store_dsn
    from specscope.store.connection import Store

    with Store.open(store_dsn(os.environ, args.store), create=False) as store:
        lines = recorded(store, time.time_ns() - args.since, args.most)
    written = write_trace(args.trace, lines)
    said = f"{args.trace}: {written} requests; prompts are not kept, so arbitrary ones will be sent"
    plain = {"trace": str(args.trace), "requests": written, "synthetic": written}
    sys.stdout.write((json.dumps(plain) if args.json else said) + "\n")
    return 0


def _replay(args: Namespace) -> int:
    from specscope.errors import UsageError
    from specscope.replay import result as results
    from specscope.replay.judge import judge
    from specscope.replay.play import ReplayPace, play
    from specscope.replay.schedule import cut
    from specscope.replay.show import lines
    from specscope.replay.trace import read_trace

    if args.a is None or args.b is None:
        raise UsageError("two endpoints are compared: --a URL and --b URL")
    trace = read_trace(args.trace)
    by_time = args.concurrency is None
    parts = cut(trace, args.parts, args.passes, args.seed, by_time=by_time)
    pace = ReplayPace(args.speed, args.concurrency, args.together, args.warm_up, args.timeout_s)
    urls = (args.a[1], args.b[1])
    arms = (args.a[0] or "a", args.b[0] or "b")
    outcomes = play(urls, parts, pace, model=args.model, say=_aside)
    how = {
        "parts": len(parts), "passes": args.passes, "speed": args.speed, "seed": args.seed,
        "concurrency": args.concurrency, "together": args.together, "warm_up": args.warm_up,
    }  # fmt: skip
    result = results.ReplayResult(
        created_at=time.time_ns(),
        epoch=args.epoch,
        arms=arms,
        urls=urls,
        trace_sha256=trace.sha256,
        requests=len(trace.requests),
        how=how,
        judged=judge(trace, outcomes, arms),
    )
    if args.out:
        results.write(args.out, result)
    plain = json.dumps(results.as_json(result), indent=1, allow_nan=False)
    sys.stdout.write((plain if args.json else "\n".join(lines(result))) + "\n")
    return ExitCode.of_answer(any(one.verdict.action.settles for one in result.judged.verdicts))


def _aside(line: str) -> None:
    sys.stderr.write(line + "\n")
