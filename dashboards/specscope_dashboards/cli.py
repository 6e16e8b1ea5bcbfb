"""`specscope dashboards render | push`."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace, _SubParsersAction
from dataclasses import asdict
from pathlib import Path
from typing import Any


def add_parser(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    """Add the verb to the command line."""
    parser = subparsers.add_parser("dashboards", help="Grafana dashboards as code")
    verbs = parser.add_subparsers(dest="dashboards_verb", metavar="VERB", required=True)

    write = verbs.add_parser("render", help="write the dashboards as JSON files")
    write.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    write.add_argument("--json", action="store_true", help="print the paths as JSON")
    write.set_defaults(run=render)

    send = verbs.add_parser("push", help="put the dashboards into a running Grafana")
    send.add_argument(
        "url", help="address of Grafana: http://host:3000 or http://user:password@host:3000"
    )
    send.add_argument(
        "--token-env",
        default="GRAFANA_TOKEN",
        metavar="NAME",
        help="variable that holds the token of a service account (default: %(default)s)",
    )
    send.add_argument(
        "--folder", default="specscope", help="uid of the folder (default: %(default)s)"
    )
    send.add_argument(
        "--json", action="store_true", help="print the dashboards that Grafana now has, as JSON"
    )
    send.set_defaults(run=push)


def render(args: Namespace) -> int:
    """Write the dashboards."""
    from specscope_dashboards.rendering import write

    paths = [str(path) for path in write(args.out)]
    _say(args, paths, paths)
    return 0


def push(args: Namespace) -> int:
    """Put the dashboards into a Grafana."""
    from specscope_dashboards import grafana, rendering

    token = os.environ.get(args.token_env) or None
    pushed = grafana.push(rendering.rendered(), args.url, token, args.folder)
    lines = [f"{each.url} (version {each.version})" for each in pushed]
    _say(args, [asdict(each) for each in pushed], lines)
    return 0


def _say(args: Namespace, values: Any, lines: list[str]) -> None:
    text = json.dumps(values, indent=1) if args.json else "\n".join(lines)
    sys.stdout.write(f"{text}\n")
