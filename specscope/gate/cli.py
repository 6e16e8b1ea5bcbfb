"""`specscope gate`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from specscope.arguments import PERIOD, add_judgement, count, draft_length, period, positive, whole
from specscope.gate.arguments import address, lengths, replicas, share, words

ENGINE_NAMES = ("vllm", "sglang", "tensorrt-llm", "specscope")


def add_parser(subparsers: Any) -> None:
    """Describe the verb and its commands."""
    parser = subparsers.add_parser(
        "gate",
        help="run experiments and manage the table of draft lengths",
        description="Runs experiments and manages the table that decides draft lengths. The usual "
        "order: plan, calibrate, watch, recommend, apply. rollback undoes a change.",
    )
    verbs = parser.add_subparsers(dest="gate", metavar="ACTION", required=True)
    _show(verbs)
    _recommend(verbs)
    _plan(verbs)
    _propose(verbs)
    _diff(verbs)
    _apply(verbs)
    _history(verbs)
    _rollback(verbs)
    _detach(verbs)
    _calibrate(verbs)
    _autopilot(verbs)
    _watch(verbs)
    _export(verbs)


def _show(verbs: Any) -> None:
    parser = _verb(verbs, "show", "show the table in force and where it came from")
    parser.set_defaults(run=_command("advice", "show"))


def _recommend(verbs: Any) -> None:
    parser = _verb(verbs, "recommend", "recommend a table, with the reasons")
    _evidence(parser)
    parser.add_argument(
        "--out", type=Path, help="write the recommendation to a file, for `gate apply`"
    )
    parser.set_defaults(run=_command("advice", "recommend"))


def _plan(verbs: Any) -> None:
    parser = _verb(verbs, "plan", "say how long verdicts will take")
    _evidence(parser)
    parser.add_argument("--share", type=share, help="share of pairs that are experimental")
    parser.add_argument(
        "--replicas", type=count, help="replicas that run blocks (default: as seen)"
    )
    parser.add_argument("--block-s", type=positive, help="length of a block (default: as seen)")
    _crossover(parser)
    parser.add_argument(
        "--hours",
        type=positive,
        default=24.0,
        help="length of a crossover's schedule (default: %(default)s)",
    )
    parser.add_argument(
        "--router",
        choices=("haproxy", "nginx"),
        default="haproxy",
        help="router to write rules for",
    )
    parser.add_argument(
        "--address",
        type=address,
        action="append",
        default=[],
        metavar="REPLICA=HOST:PORT",
        help="address at which the router finds a replica",
    )
    parser.add_argument("--out", type=Path, help="write the router's files to a folder")
    parser.set_defaults(run=_command("experiments", "plan"))


def _crossover(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--crossover",
        nargs="+",
        type=replicas,
        metavar="SIDE",
        help="replicas of two or three sides, such as r0,r1 r2,r3, whose traffic a router swaps; "
        "for engines that cannot change k while they run",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the crossover's order (default: %(default)s)"
    )
    parser.add_argument(
        "--differs",
        type=words,
        metavar="PARTS",
        help="declared differences between the sides of a crossover, such as drafter,version or "
        "configuration.KEY, besides speculation and its length",
    )


def _propose(verbs: Any) -> None:
    parser = _verb(verbs, "propose", "rank tables for mixed traffic, and name the one to try")
    parser.add_argument(
        "--since",
        type=period,
        default=PERIOD,
        help="how far back rounds count, such as 24h (default: 7d)",
    )
    parser.add_argument("--epoch", help="epoch whose rounds count (default: the latest)")
    parser.add_argument(
        "--default-k",
        type=draft_length,
        help="draft length that the engines use without specscope; needed if no table is in force",
    )
    parser.add_argument(
        "--out", type=Path, help="write the table to a file, for `gate calibrate --arms`"
    )
    parser.set_defaults(run=_command("propose", "propose_command"))


def _diff(verbs: Any) -> None:
    parser = _verb(verbs, "diff", "show what a table would change")
    _evidence(parser)
    _table(parser)
    parser.set_defaults(run=_command("advice", "diff"))


def _apply(verbs: Any) -> None:
    parser = _verb(verbs, "apply", "put a table in force, as a new policy")
    _evidence(parser)
    _table(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the policy without writing it"
    )
    parser.add_argument(
        "--hold-out",
        type=share,
        help="share of pairs that keep comparing with target-only, such as 5%%",
    )
    parser.add_argument(
        "--block-s",
        type=positive,
        default=120.0,
        help="length of the hold-out's blocks (default: 120)",
    )
    parser.add_argument(
        "--over-budget",
        action="store_true",
        help="allow a hold-out that may cost more than 1 %% of capacity",
    )
    _through(parser)
    parser.set_defaults(run=_command("changes", "apply"))


def _history(verbs: Any) -> None:
    parser = _verb(verbs, "history", "list who changed the gate, when and why, and who follows it")
    parser.add_argument(
        "--all", action="store_true", help="list every policy, not only the newest 20"
    )
    parser.set_defaults(run=_command("history", "history"))


def _rollback(verbs: Any) -> None:
    parser = _verb(
        verbs, "rollback", "end the running experiment, or put an earlier table in force again"
    )
    parser.add_argument(
        "--to",
        type=whole,
        metavar="POLICY",
        help="policy whose table to use, as `gate history` numbers it (default: one step back)",
    )
    _through(parser)
    parser.set_defaults(run=_command("changes", "rollback"))


def _detach(verbs: Any) -> None:
    parser = _verb(verbs, "detach", "turn every hook off until its engine starts again")
    parser.add_argument(
        "--approve",
        action="store_true",
        help="do it; without this the command only describes its effect",
    )
    _through(parser)
    parser.set_defaults(run=_command("changes", "detach"))


def _watch(verbs: Any) -> None:
    parser = _verb(verbs, "watch", "follow an experiment: pairs, verdicts, cost, time left")
    parser.add_argument(
        "policy",
        type=whole,
        nargs="?",
        help="number of the experiment's policy (default: the newest)",
    )
    parser.add_argument("--once", action="store_true", help="show the state once, and end")
    parser.add_argument(
        "--every-s",
        type=positive,
        default=15.0,
        help="seconds between two lines (default: %(default)s)",
    )
    parser.set_defaults(run=_command("watch", "watch"))


def _calibrate(verbs: Any) -> None:
    parser = _verb(verbs, "calibrate", "run an experiment for a limited time")
    parser.add_argument(
        "--k", type=lengths, help="draft lengths to compare, such as 0,2,4; 0 must be among them"
    )
    parser.add_argument(
        "--arms",
        type=words,
        help="draft lengths and tables to compare, such as k0,2,current,current+json:2,table.json; "
        "k0 must be among them. current is the table in force, current+json:2 changes one class of "
        "it, and a file holds a table",
    )
    _crossover(parser)
    parser.add_argument("--minutes", type=positive, required=True, help="longest duration")
    parser.add_argument(
        "--block-s",
        type=positive,
        help="length of a block (default: long enough for last week's requests, 120 if there were "
        "none, 240 for a crossover)",
    )
    parser.add_argument(
        "--default-k",
        type=draft_length,
        help="draft length that the engine uses without specscope, also after the experiment; "
        "needed "
        "if no table is in force",
    )
    parser.add_argument(
        "--loss-budget",
        type=share,
        help="end the experiment if its arms have cost this share of capacity, such as 5%%",
    )
    _closed_loop(parser)
    parser.add_argument(
        "--whole-window",
        action="store_true",
        help="run to the end, even if every segment has its answer",
    )
    parser.add_argument(
        "--approve",
        action="store_true",
        help="do it; without this the command only describes its effect",
    )
    _through(parser)
    parser.set_defaults(run=_command("experiments", "calibrate"))


def _autopilot(verbs: Any) -> None:
    parser = _verb(verbs, "autopilot", "let the service try arms, within a loss budget")
    parser.add_argument(
        "--arms",
        type=words,
        required=True,
        help="draft lengths and tables to try, such as 2,4,current+json:2,table.json; k0 and the "
        "table in force always run beside them",
    )
    parser.add_argument(
        "--budget",
        type=share,
        default=0.01,
        help="share of capacity that the trials may cost at most, such as 1%%",
    )
    parser.add_argument(
        "--worst",
        type=share,
        default=0.5,
        help="loss to assume for an arm without an interval, such as 50%%",
    )
    parser.add_argument(
        "--apply",
        action="store_true",
        help="put a table in force if it is better with 95 %% confidence (default: propose it)",
    )
    parser.add_argument(
        "--block-s",
        type=positive,
        help="length of a block (default: long enough for last week's requests)",
    )
    parser.add_argument("--window-h", type=positive, default=24.0, help="hours between two steps")
    parser.add_argument(
        "--default-k",
        type=draft_length,
        help="draft length that the engine uses without specscope; needed if no table is in force",
    )
    parser.add_argument(
        "--approve",
        action="store_true",
        help="do it; without this the command only describes its effect",
    )
    _closed_loop(parser)
    _through(parser)
    parser.set_defaults(run=_command("pilot", "autopilot"))


def _closed_loop(parser: Any) -> None:
    parser.add_argument(
        "--closed-loop",
        action="store_true",
        help="clients wait for their answers before they ask again: judge tokens per second",
    )


def _export(verbs: Any) -> None:
    parser = _verb(
        verbs,
        "export",
        "print the table in an engine's format, and its loss against the full table",
    )
    _evidence(parser)
    parser.add_argument("engine", choices=ENGINE_NAMES, help="engine that will read the table")
    parser.add_argument(
        "--largest-batch",
        type=count,
        default=1024,
        help="most sequences that the engine runs at once (default: %(default)s)",
    )
    parser.set_defaults(run=_command("advice", "export"))


def _verb(verbs: Any, name: str, text: str) -> ArgumentParser:
    parser: ArgumentParser = verbs.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.add_argument("--store", help="the store (default: SPECSCOPE_STORE)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _evidence(parser: ArgumentParser) -> None:
    add_judgement(parser)
    parser.add_argument("--epoch", help="epoch whose evidence counts (default: the latest)")
    parser.add_argument(
        "--accept-replayed",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="result of `specscope replay` that may decide cells without a verdict from pairs",
    )


def _table(parser: ArgumentParser) -> None:
    parser.add_argument(
        "table", type=Path, nargs="?", help="file of a table (default: the recommendation)"
    )


def _through(parser: ArgumentParser) -> None:
    parser.add_argument("--note", default="", help="reason, for `gate history`")
    parser.add_argument(
        "--author", default="", help="your name, for `gate history` (default: the account)"
    )
    parser.add_argument(
        "--service",
        metavar="HOST:PORT",
        help="service that owns the store, to change a policy through it; needs "
        "SPECSCOPE_APPLY_TOKEN (default: SPECSCOPE_SERVICE)",
    )


def _command(module: str, name: str) -> Callable[[Namespace], int]:
    """Import a command only when it runs, because numpy and scipy load slowly."""

    def run(args: Namespace) -> int:
        code: int = getattr(import_module(f"specscope.gate.{module}"), name)(args)
        return code

    return run
