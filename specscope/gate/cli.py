"""`specscope gate`."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from specscope.period import DEFAULT, period

ENGINE_NAMES = ("vllm", "sglang", "tensorrt-llm", "specscope")


def add_parser(subparsers: Any) -> None:
    """Describe the verb and what it can do."""
    parser = subparsers.add_parser(
        "gate",
        help="the table that decides the draft length",
        description="Shows, recommends, applies and exports the table of draft lengths.",
    )
    verbs = parser.add_subparsers(dest="gate", metavar="ACTION", required=True)
    _show(verbs)
    _recommend(verbs)
    _plan(verbs)
    _diff(verbs)
    _apply(verbs)
    _rollback(verbs)
    _calibrate(verbs)
    _export(verbs)


def share(text: str) -> float:
    """A share in 0..1, given as 0.05 or as 5%."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a share such as 0.05 or 5%") from None
    if not 0 < value <= 1:
        raise ArgumentTypeError(f"{text!r} is not within 0 and 1")
    return value


def lengths(text: str) -> list[int]:
    """Draft lengths, such as 0,2,4; 0 among them and one more."""
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise ArgumentTypeError(f"{text!r} are not draft lengths such as 0,2,4") from None
    if len(found) < 2 or found[0] != 0 or found[-1] > 255:
        raise ArgumentTypeError(f"{text!r}: 0 and at least one other draft length are compared")
    return found


def replicas(text: str) -> tuple[str, ...]:
    """Names of replicas, such as r0,r1."""
    found = tuple(name for name in text.split(",") if name)
    if not found:
        raise ArgumentTypeError(f"{text!r} names no replica")
    return found


def address(text: str) -> tuple[str, str]:
    """A replica and where it listens, such as r0=10.0.0.1:8000."""
    name, equals, where = text.partition("=")
    if not name or not equals or ":" not in where:
        raise ArgumentTypeError(f"{text!r} is not an address such as r0=10.0.0.1:8000")
    return name, where


def allowance(text: str) -> tuple[str, float]:
    """A class and what its tokens may take, such as chat=50. [ms]"""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ArgumentTypeError(f"{text!r} is not an allowance such as chat=50")
    return name, seconds(value)


def seconds(text: str) -> float:
    """A positive number."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a length of time")
    return value


def _show(verbs: Any) -> None:
    parser = _verb(verbs, "show", "the table in force and where it came from")
    _run(parser, "show")


def _recommend(verbs: Any) -> None:
    parser = _verb(verbs, "recommend", "what should be in force, and why")
    _evidence(parser)
    parser.add_argument("--out", type=Path, help="write the recommendation to a file for `apply`")
    _run(parser, "recommend")


def _plan(verbs: Any) -> None:
    parser = _verb(verbs, "plan", "how long verdicts will take")
    _evidence(parser)
    parser.add_argument("--share", type=share, help="of pairs that are experimental")
    parser.add_argument("--replicas", type=int, help="that run blocks; as seen, by default")
    parser.add_argument("--block-s", type=seconds, help="length of a block; as seen, by default")
    _crossover(parser)
    parser.add_argument("--hours", type=seconds, default=24.0, help="of a crossover's schedule")
    parser.add_argument("--router", choices=("haproxy", "nginx"), default="haproxy")
    parser.add_argument(
        "--address",
        type=address,
        action="append",
        default=[],
        metavar="REPLICA=HOST:PORT",
        help="where the router finds a replica",
    )
    parser.add_argument("--out", type=Path, help="folder for the router's files")
    _run(parser, "plan")


def _crossover(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--crossover",
        nargs=2,
        type=replicas,
        metavar=("LEFT", "RIGHT"),
        help="replicas of two sides, such as r0,r1 r2,r3, whose traffic a router swaps: for "
        "engines that cannot change k while they run",
    )
    parser.add_argument("--seed", type=int, default=1, help="of which stream begins where")


def _diff(verbs: Any) -> None:
    parser = _verb(verbs, "diff", "what would change")
    _evidence(parser)
    parser.add_argument("table", type=Path, nargs="?", help="a file; the recommendation by default")
    _run(parser, "diff")


def _apply(verbs: Any) -> None:
    parser = _verb(verbs, "apply", "put a table in force, as a new policy")
    _evidence(parser)
    parser.add_argument("table", type=Path, nargs="?", help="a file; the recommendation by default")
    parser.add_argument("--note", default="", help="why, for those who read it later")
    parser.add_argument("--dry-run", action="store_true", help="print the policy, write nothing")
    parser.add_argument(
        "--hold-out", type=share, help="share of pairs that go on comparing with target-only"
    )
    parser.add_argument("--block-s", type=seconds, default=120.0, help="length of their blocks")
    parser.add_argument(
        "--over-budget", action="store_true", help="a hold-out that may cost over 1 %% of capacity"
    )
    _through(parser)
    _run(parser, "apply")


def _rollback(verbs: Any) -> None:
    parser = _verb(verbs, "rollback", "put the table before in force again")
    parser.add_argument("--note", default="", help="why, for those who read it later")
    _through(parser)
    _run(parser, "rollback")


def _calibrate(verbs: Any) -> None:
    parser = _verb(verbs, "calibrate", "a window in which every block is experimental")
    parser.add_argument("--k", type=lengths, help="draft lengths, such as 0,2,4")
    _crossover(parser)
    parser.add_argument("--minutes", type=seconds, required=True, help="how long it may last")
    parser.add_argument(
        "--block-s",
        type=seconds,
        help="length of a block; by default what the residence of last week's requests asks for, "
        "120 where none was measured and for a crossover",
    )
    parser.add_argument(
        "--default-k",
        type=int,
        help="draft length that the engine runs by itself, and again after the window; needed "
        "where no table is in force",
    )
    parser.add_argument(
        "--approve", action="store_true", help="without this it only says what it would do"
    )
    _through(parser)
    _run(parser, "calibrate")


def _export(verbs: Any) -> None:
    parser = _verb(verbs, "export", "the table in an engine's own words, with its regret")
    _evidence(parser)
    parser.add_argument("engine", choices=ENGINE_NAMES)
    parser.add_argument(
        "--largest-batch", type=int, default=1024, help="most sequences that the engine runs"
    )
    _run(parser, "export")


def _verb(verbs: Any, name: str, text: str) -> ArgumentParser:
    parser: ArgumentParser = verbs.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.add_argument("--store", help="destination; SPECSCOPE_STORE by default")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _evidence(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--since", type=period, default=DEFAULT, help="how far back evidence reaches: 24h, 7d, 4w"
    )
    parser.add_argument("--epoch", help="whose evidence counts; the one that ran last, by default")
    parser.add_argument(
        "--default-k", type=int, help="draft length in force where no table is; 0 by default"
    )
    parser.add_argument(
        "--tpot-ms",
        type=allowance,
        action="append",
        default=[],
        metavar="CLASS=MS",
        help="what the 95th percentile of a class's time per output token may be",
    )
    parser.add_argument(
        "--accept-replayed",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="result of `specscope replay` that cells may rest on; without this none does",
    )
    parser.add_argument(
        "--closed-loop",
        action="store_true",
        help="clients wait for their answers, so a faster arm rightly serves more requests",
    )


def _through(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--service",
        metavar="HOST:PORT",
        help="apply through the service that owns the store, with its SPECSCOPE_APPLY_TOKEN; "
        "SPECSCOPE_SERVICE where --store is a read endpoint",
    )


def _run(parser: ArgumentParser, command: str) -> None:
    def run(args: Namespace) -> int:
        from specscope.gate import commands

        return int(getattr(commands, command)(args))

    parser.set_defaults(run=run)
