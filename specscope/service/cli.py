"""`specscope serve`: the ingest service with its store."""

from __future__ import annotations

import json
import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Describe the verb."""
    parser: ArgumentParser = subparsers.add_parser(
        "serve",
        help="run the service with its store",
        description="Runs the service: it stores batches of sidecars, computes rollups, and "
        "answers read-only SQL.",
        epilog="`specscope gate` changes policies through the service if both have the same "
        "SPECSCOPE_APPLY_TOKEN.",
    )
    parser.add_argument(
        "--store",
        metavar="DSN",
        help="chdb:///path, owned by this process, or clickhouse://user@host/db (default: "
        "SPECSCOPE_STORE)",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="address for sidecars (default: SPECSCOPE_LISTEN, or 127.0.0.1:7070)",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="address for /health, /metrics, /report and, with an embedded store, SQL (default: "
        "SPECSCOPE_HTTP, or 127.0.0.1:8123)",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen beyond this machine without tokens and TLS: anybody who reaches the ports "
        "may write and read (SPECSCOPE_INSECURE)",
    )
    parser.add_argument("--json", action="store_true", help="print the addresses as JSON")
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        help="print the statements that create the tables on a cluster, and end",
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Serve until a signal to end."""
    from specscope.service.app import Running, serve
    from specscope.settings import ServiceSettings

    if args.cluster:
        return _print_cluster(args)
    settings = ServiceSettings.from_env(
        os.environ, store=args.store, listen=args.listen, http=args.http, insecure=args.insecure
    )
    os.umask(0o077)  # of every file of the engine too: nobody else reads the store
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)

    def started(service: Running) -> None:
        where = {"grpc": service.port, "http": service.http_port}
        text = json.dumps(where) if args.json else _sentence(where)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    serve(settings, started)
    return 0


def _sentence(where: dict[str, Any]) -> str:
    return "serving: sidecars on port {grpc}, HTTP on port {http}".format(**where)


def _print_cluster(args: Namespace) -> int:
    from specscope.store.connection import DATABASE
    from specscope.store.tables import LAYOUTS, create_on_cluster

    for table in LAYOUTS:
        for statement in create_on_cluster(table, args.cluster, DATABASE):
            sys.stdout.write(statement + ";\n")
    return 0
