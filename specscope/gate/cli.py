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
    _propose(verbs)
    _diff(verbs)
    _apply(verbs)
    _history(verbs)
    _rollback(verbs)
    _detach(verbs)
    _calibrate(verbs)
    _watch(verbs)
    _export(verbs)


def _show(verbs: Any) -> None:
    parser = _verb(verbs, "show", "the table in force and where it came from")
    parser.set_defaults(run=_command("advice", "show"))


def _recommend(verbs: Any) -> None:
    parser = _verb(verbs, "recommend", "what should be in force, and why")
    _evidence(parser)
    parser.add_argument("--out", type=Path, help="write the recommendation to a file for `apply`")
    parser.set_defaults(run=_command("advice", "recommend"))


def _plan(verbs: Any) -> None:
    parser = _verb(verbs, "plan", "how long verdicts will take")
    _evidence(parser)
    parser.add_argument("--share", type=share, help="of pairs that are experimental")
    parser.add_argument("--replicas", type=count, help="that run blocks; as seen, by default")
    parser.add_argument("--block-s", type=positive, help="length of a block; as seen, by default")
    _crossover(parser)
    parser.add_argument("--hours", type=positive, default=24.0, help="of a crossover's schedule")
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
    parser.set_defaults(run=_command("experiments", "plan"))


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


def _propose(verbs: Any) -> None:
    parser = _verb(verbs, "propose", "the table that is worth an experiment on mixed traffic")
    parser.add_argument(
        "--since", type=period, default=PERIOD, help="how far back rounds count: 24h, 7d, 4w"
    )
    parser.add_argument("--epoch", help="whose rounds count; the one that ran last, by default")
    parser.add_argument(
        "--default-k",
        type=draft_length,
        help="draft length that engines run by themselves, if no table is in force",
    )
    parser.add_argument("--out", type=Path, help="write the table to a file for `calibrate --arms`")
    parser.set_defaults(run=_command("propose", "propose_command"))


def _diff(verbs: Any) -> None:
    parser = _verb(verbs, "diff", "what would change")
    _evidence(parser)
    _table(parser)
    parser.set_defaults(run=_command("advice", "diff"))


def _apply(verbs: Any) -> None:
    parser = _verb(verbs, "apply", "put a table in force, as a new policy")
    _evidence(parser)
    _table(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the policy, write nothing")
    parser.add_argument(
        "--hold-out", type=share, help="share of pairs that go on comparing with target-only"
    )
    parser.add_argument("--block-s", type=positive, default=120.0, help="length of their blocks")
    parser.add_argument(
        "--over-budget", action="store_true", help="a hold-out that may cost over 1 %% of capacity"
    )
    _through(parser)
    parser.set_defaults(run=_command("changes", "apply"))


def _history(verbs: Any) -> None:
    parser = _verb(verbs, "history", "who changed the gate, when and why, and who follows it")
    parser.add_argument("--all", action="store_true", help="every policy, not the newest 20")
    parser.set_defaults(run=_command("history", "history"))


def _rollback(verbs: Any) -> None:
    parser = _verb(
        verbs, "rollback", "end the experiment that runs, or put an earlier table in force again"
    )
    parser.add_argument(
        "--to",
        type=whole,
        metavar="POLICY",
        help="the policy whose table it is, as `history` numbers them; one step back by default",
    )
    _through(parser)
    parser.set_defaults(run=_command("changes", "rollback"))


def _detach(verbs: Any) -> None:
    parser = _verb(verbs, "detach", "turn every hook off until its engine starts again")
    parser.add_argument(
        "--approve", action="store_true", help="without this it only says what it would do"
    )
    _through(parser)
    parser.set_defaults(run=_command("changes", "detach"))


def _watch(verbs: Any) -> None:
    parser = _verb(verbs, "watch", "an experiment while it runs: pairs, intervals, cost, time left")
    parser.add_argument("policy", type=whole, nargs="?", help="its number; the newest by default")
    parser.add_argument("--once", action="store_true", help="show it as it stands, and end")
    parser.add_argument("--every-s", type=positive, default=15.0, help="seconds between two looks")
    parser.set_defaults(run=_command("watch", "watch"))


def _calibrate(verbs: Any) -> None:
    parser = _verb(verbs, "calibrate", "a window in which every block is experimental")
    parser.add_argument("--k", type=lengths, help="draft lengths, such as 0,2,4")
    parser.add_argument(
        "--arms",
        type=words,
        help="draft lengths and tables, such as k0,2,current,current+json:2,table.json: k0 among "
        "them; current is the table in force, current+json:2 changes one class of it, and a file "
        "holds a table as `apply` reads it",
    )
    _crossover(parser)
    parser.add_argument("--minutes", type=positive, required=True, help="how long it may last")
    parser.add_argument(
        "--block-s",
        type=positive,
        help="length of a block; by default what the residence of last week's requests asks for, "
        "120 where none was measured; 240 for a crossover, as in its plan",
    )
    parser.add_argument(
        "--default-k",
        type=draft_length,
        help="draft length that the engine runs by itself, and again after the window; needed "
        "where no table is in force",
    )
    parser.add_argument(
        "--loss-budget",
        type=share,
        help="end it once its arms have cost this share of the window's capacity, such as 5%%",
    )
    parser.add_argument(
        "--whole-window",
        action="store_true",
        help="go on to the end even if every segment has its answer before",
    )
    parser.add_argument(
        "--approve", action="store_true", help="without this it only says what it would do"
    )
    _through(parser)
    parser.set_defaults(run=_command("experiments", "calibrate"))


def _export(verbs: Any) -> None:
    parser = _verb(verbs, "export", "the table in an engine's own words, with its regret")
    _evidence(parser)
    parser.add_argument("engine", choices=ENGINE_NAMES)
    parser.add_argument(
        "--largest-batch", type=count, default=1024, help="most sequences that the engine runs"
    )
    parser.set_defaults(run=_command("advice", "export"))


def _verb(verbs: Any, name: str, text: str) -> ArgumentParser:
    parser: ArgumentParser = verbs.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.add_argument("--store", help="destination; SPECSCOPE_STORE by default")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _evidence(parser: ArgumentParser) -> None:
    add_judgement(parser)
    parser.add_argument("--epoch", help="whose evidence counts; the one that ran last, by default")
    parser.add_argument(
        "--accept-replayed",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="result of `specscope replay` that cells may rest on; without this none does",
    )


def _table(parser: ArgumentParser) -> None:
    parser.add_argument("table", type=Path, nargs="?", help="a file; the recommendation by default")


def _through(parser: ArgumentParser) -> None:
    parser.add_argument("--note", default="", help="why, for those who read it later")
    parser.add_argument("--author", default="", help="who changes it; you, by default")
    parser.add_argument(
        "--service",
        metavar="HOST:PORT",
        help="apply through the service that owns the store, with its SPECSCOPE_APPLY_TOKEN; "
        "SPECSCOPE_SERVICE where --store is a read endpoint",
    )


def _command(module: str, name: str) -> Callable[[Namespace], int]:
    """A command that is imported when it runs: numpy and more take a while to load."""

    def run(args: Namespace) -> int:
        code: int = getattr(import_module(f"specscope.gate.{module}"), name)(args)
        return code

    return run
