"""`specscope top`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specscope.arguments import positive

if TYPE_CHECKING:
    from specscope.top.watch import Replica, Watch

SCHEMA = "specscope.top/1"
# A terminal's own words, so that the sidecar's image, which draws nothing else, needs no package.
ENTER, HOME, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[H\x1b[J", "\x1b[?25h\x1b[?1049l"


def add_parser(subparsers: Any) -> None:
    """Describe the verb."""
    parser = subparsers.add_parser(
        "top",
        help="show the rounds of running engines, live",
        description="Shows the newest records of the rings of a folder: rounds, draft lengths, "
        "acceptance by position, where the time goes, the running experiment and the "
        "GPUs. Takes nothing "
        "from the sidecar. NO_COLOR=1 leaves colours out.",
    )
    parser.add_argument(
        "rings", type=Path, nargs="?", help="directory of the rings (default: SPECSCOPE_RINGS)"
    )
    parser.add_argument("--replica", help="show only this replica")
    parser.add_argument(
        "--seconds",
        type=positive,
        default=10.0,
        help="seconds of rounds for each figure (default: 10)",
    )
    parser.add_argument(
        "--every", type=positive, default=1.0, help="seconds between two updates (default: 1)"
    )
    parser.add_argument("--once", action="store_true", help="print once, and end")
    parser.add_argument("--json", action="store_true", help="print a line of JSON per update")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Show the replicas once, or until interrupted, which is the normal end."""
    from specscope.top.watch import Watch

    folder = _folder(args.rings, os.environ)
    watch = Watch(folder, args.seconds, args.replica)
    try:
        if args.once:
            replicas = _found(watch, folder, args.replica)
            _print_json(replicas) if args.json else _print(replicas)
        elif args.json:
            _repeat(lambda: _print_json(watch.look()), args.every)
        else:
            _live(watch, folder, args.every)
    except KeyboardInterrupt:
        if args.once:
            raise
    finally:
        watch.close()
    return 0


def _folder(given: Path | None, environ: Mapping[str, str]) -> Path:
    """The folder of the rings. Raises UsageError without a folder, or for an unknown SPECSCOPE_*
    name."""
    from specscope.errors import UsageError
    from specscope_hook.settings import check

    check(environ)
    named = environ.get("SPECSCOPE_RINGS", "")
    if given is None and named in ("", "off"):
        raise UsageError("no folder of rings: name it, or set SPECSCOPE_RINGS as for the engine")
    return given or Path(named)


def _found(watch: Watch, folder: Path, replica: str | None) -> list[Replica]:
    """The replicas of the folder. Raises InputError if there are none."""
    from specscope.errors import InputError

    replicas = watch.look()
    if replicas:
        return replicas
    for reason in watch.refused.values():
        raise InputError(reason)
    whose = f" of {replica}" if replica else ""
    raise InputError(f"no ring{whose} in {folder}: is SPECSCOPE_RINGS set where the engine runs?")


def _print(replicas: list[Replica]) -> None:
    from specscope.top.screen import lines

    sys.stdout.write("".join(f"{line}\n" for line in lines(replicas)))


def _print_json(replicas: list[Replica]) -> None:
    body = {"schema": SCHEMA, "at": time.time_ns(), "replicas": [asdict(one) for one in replicas]}
    sys.stdout.write(json.dumps(body, allow_nan=False) + "\n")
    sys.stdout.flush()


def _live(watch: Watch, folder: Path, every_s: float) -> None:
    """Redraw in place; a terminal gets its alternate screen until the end."""
    from specscope.top.screen import ScreenLine, Style, fitting, painted, styled

    is_terminal = sys.stdout.isatty()
    enter, redraw, leave = (ENTER, HOME, LEAVE) if is_terminal else ("", "", "")
    coloured = is_terminal and not os.environ.get("NO_COLOR")

    def show() -> None:
        replicas = watch.look()
        room = shutil.get_terminal_size().lines - len(watch.refused) - 1
        shown = fitting(replicas, room) if is_terminal else list(styled(replicas))
        shown += [ScreenLine(reason, Style.BAD) for reason in watch.refused.values()]
        shown = shown or [ScreenLine(f"no ring in {folder} yet", Style.FAINT)]
        texts = (painted(line) if coloured else line.text for line in shown)
        sys.stdout.write(redraw + "".join(f"{text}\n" for text in texts))
        sys.stdout.flush()

    sys.stdout.write(enter)
    try:
        _repeat(show, every_s)
    finally:
        sys.stdout.write(leave)


def _repeat(act: Callable[[], None], every_s: float) -> None:
    while True:
        act()
        time.sleep(every_s)
