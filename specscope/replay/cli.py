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
        help="compare two servers on one trace",
        description="Sends one trace to two OpenAI-compatible servers and compares answers and "
        "times at the client. With --record or --prompts it writes a trace instead.",
    )
    parser.add_argument("trace", type=Path, help="file of JSON lines, see docs/replay.md")
    parser.add_argument(
        "--a",
        type=named_address,
        metavar="[ARM=]URL",
        help="baseline server, such as k0=http://one:8000",
    )
    parser.add_argument(
        "--b",
        type=named_address,
        metavar="[ARM=]URL",
        help="server to compare, such as k4=http://two:8000",
    )
    parser.add_argument(
        "--parts",
        type=count,
        default=10,
        help="number of parts of the trace (default: %(default)s)",
    )
    parser.add_argument(
        "--passes", type=count, default=1, help="runs of the whole trace (default: %(default)s)"
    )
    parser.add_argument(
        "--speed",
        type=positive,
        default=1.0,
        help="speed of arrivals; 2 is twice as fast (default: 1)",
    )
    parser.add_argument(
        "--concurrency",
        type=count,
        help="ignore arrival times and keep this many requests in flight",
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="run both servers at once; only if they share no hardware",
    )
    parser.add_argument("--model", help="model name to request (default: the server's first)")
    parser.add_argument(
        "--warm-up",
        type=whole,
        default=2,
        help="unmeasured requests per server (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout-s",
        type=positive,
        default=300.0,
        help="longest time without a byte of an answer (default: 300)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the order of the servers and of --prompts' arrivals (default: 0)",
    )
    parser.add_argument(
        "--epoch", default="", help="epoch of the engine in the store, to limit the result to it"
    )
    parser.add_argument(
        "--out", type=Path, help="write the result to a file, for gate --accept-replayed"
    )
    parser.add_argument("--page", type=Path, help="write the result as Markdown")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="write the verdicts into the store, for the report; with a result as TRACE and "
        "without --a and --b, the verdicts of that result",
    )
    parser.add_argument(
        "--service",
        metavar="HOST:PORT",
        help="service that owns the store, for --keep; needs SPECSCOPE_APPLY_TOKEN (default: "
        "SPECSCOPE_SERVICE)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    write = parser.add_argument_group("write a trace")
    source = write.add_mutually_exclusive_group()
    source.add_argument(
        "--record",
        action="store_true",
        help="write a trace of the requests in a store, which has no prompts",
    )
    source.add_argument(
        "--prompts",
        metavar="FILE",
        help="write a trace of these prompts: JSON lines, a ShareGPT file, or `bundled`",
    )
    parser.add_argument("--store", help="store for --record and --keep (default: SPECSCOPE_STORE)")
    write.add_argument(
        "--since",
        type=period,
        default=PERIOD,
        help="how far back to record, such as 24h (default: %(default)s)",
    )
    write.add_argument(
        "--most", type=count, default=10_000, help="most requests to write (default: %(default)s)"
    )
    write.add_argument(
        "--rate",
        type=positive,
        default=1.0,
        help="requests per second of --prompts (default: %(default)s)",
    )
    write.add_argument(
        "--max-tokens",
        type=count,
        default=128,
        help="longest output of each of --prompts (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def named_address(text: str) -> tuple[str, str]:
    """An arm's name, empty if none is given, and an address."""
    arm, equals, url = text.partition("=")
    if not equals or "/" in arm:
        arm, url = "", text
    if not url.startswith(("http://", "https://")):
        raise ArgumentTypeError(f"{text!r} is not an address such as http://host:8000")
    return arm, url


def run(args: Namespace) -> int:
    """Write a trace, or replay one, judge and print."""
    if args.record:
        return _record(args)
    if args.keep and args.a is None and args.b is None:
        return _keep(args)
    return _write_prompts(args) if args.prompts else _replay(args)


def _keep(args: Namespace) -> int:
    from specscope.replay import result as results
    from specscope.replay.stored import keeper

    keep = keeper(args.store, args.service)
    verdicts = keep(results.read(args.trace))
    said = f"{verdicts} verdicts of {args.trace} are in the store"
    sys.stdout.write((json.dumps({"kept": verdicts}) if args.json else said) + "\n")
    return 0


def _write_prompts(args: Namespace) -> int:
    from specscope.prompts import read_prompts
    from specscope.replay.prompted import prompted
    from specscope.replay.trace import write_trace

    path = None if args.prompts == "bundled" else Path(args.prompts)
    prompts = read_prompts(path, args.most)
    written = write_trace(args.trace, prompted(prompts, args.rate, args.max_tokens, args.seed))
    plain = {"trace": str(args.trace), "requests": written, "synthetic": 0}
    said = f"{args.trace}: {written} requests"
    sys.stdout.write((json.dumps(plain) if args.json else said) + "\n")
    return 0


def _record(args: Namespace) -> int:
    import os

    from specscope.replay.record import recorded
    from specscope.replay.trace import write_trace
    from specscope.settings import store_dsn
    from specscope.store.connection import Store

    with Store.open(store_dsn(os.environ, args.store), create=False) as store:
        lines = recorded(store, time.time_ns() - args.since, args.most)
    written = write_trace(args.trace, lines)
    said = (
        f"{args.trace}: {written} requests; promptsare not stored, so arbitrary ones will be sent"
    )
    plain = {"trace": str(args.trace), "requests": written, "synthetic": written}
    sys.stdout.write((json.dumps(plain) if args.json else said) + "\n")
    return 0


def _replay(args: Namespace) -> int:
    from specscope.errors import UsageError
    from specscope.replay import result as results
    from specscope.replay.counters import total
    from specscope.replay.journal import Journal
    from specscope.replay.judge import judge, shortfalls
    from specscope.replay.page import markdown
    from specscope.replay.play import PlayedPart, ReplayPace, play
    from specscope.replay.schedule import cut
    from specscope.replay.show import lines
    from specscope.replay.stored import keeper
    from specscope.replay.trace import read_trace

    if args.a is None or args.b is None:
        raise UsageError("name two endpoints: --a URL and --b URL")
    keep = keeper(args.store, args.service) if args.keep else None
    trace = read_trace(args.trace)
    by_time = args.concurrency is None
    parts = cut(trace, args.parts, args.passes, args.seed, by_time=by_time)
    short, nothing_decided = shortfalls(trace, parts)
    if nothing_decided:
        raise UsageError("; ".join(short))
    for line in short:
        _aside(line)
    pace = ReplayPace(args.speed, args.concurrency, args.together, args.warm_up, args.timeout_s)
    urls = (args.a[1], args.b[1])
    arms = (args.a[0] or "a", args.b[0] or "b")
    how = {
        "parts": len(parts), "passes": args.passes, "speed": args.speed, "seed": args.seed,
        "concurrency": args.concurrency, "together": args.together, "warm_up": args.warm_up,
    }  # fmt: skip
    replay = {"trace": trace.sha256, "arms": arms, "urls": urls, "model": args.model, "how": how}
    journal = Journal(args.out and args.out.with_suffix(".parts.jsonl"), replay)
    left = [part for part in parts if part.number not in {one.number for one in journal.parts}]
    if journal.parts:
        _aside(f"continues after {len(journal.parts)} of {len(parts)} parts")
    args.progress("parts", len(journal.parts), len(parts))

    def played(part: PlayedPart) -> None:
        journal.add(part)
        args.progress("parts", len(journal.parts), len(parts))

    play(urls, left, pace, model=args.model, played=played)
    outcomes = [outcome for part in journal.parts for outcome in part.outcomes]
    counted = {side: total(part.counted.get(side) for part in journal.parts) for side in "ab"}
    result = results.ReplayResult(
        created_at=time.time_ns(),
        epoch=args.epoch,
        arms=arms,
        urls=urls,
        trace_sha256=trace.sha256,
        requests=len(trace.requests),
        how=how,
        judged=judge(trace, outcomes, arms, counted),
    )
    if args.out:
        results.write(args.out, result)
        journal.remove()
    if args.page:
        args.page.write_text(markdown(result))
    plain = json.dumps(results.as_json(result), indent=1, allow_nan=False)
    sys.stdout.write((plain if args.json else "\n".join(lines(result))) + "\n")
    if keep:
        _aside(f"{keep(result)} verdicts are in the store")
    return ExitCode.of_answer(any(one.verdict.action.settles for one in result.judged.verdicts))


def _aside(line: str) -> None:
    sys.stderr.write(line + "\n")
