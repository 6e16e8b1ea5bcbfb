"""The verb `agent`."""

from __future__ import annotations

import logging
import os
import signal
import threading
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Any

from specscope_hook.settings import KNOWN

OURS = (
    *("RINGS", "SOURCES", "REPLICA", "SERVICE", "TLS_CA", "TLS_CERT", "TLS_KEY", "TOKEN_FILE"),
    *("SPOOL", "SPOOL_BYTES", "OTLP", "SAMPLE", "METRICS_PORT", "METRICS_HOST"),
)


def add_parser(subparsers: Any) -> None:
    """Describe `specscope agent`; its settings come from the environment."""
    parser: ArgumentParser = subparsers.add_parser(
        "agent",
        help="the sidecar in the serving pod",
        description="Drain the rings in SPECSCOPE_RINGS, follow the servers in SPECSCOPE_SOURCES, "
        "and ship what they hold to SPECSCOPE_SERVICE.",
        epilog="settings, from the environment:\n"
        + "\n".join(f"  SPECSCOPE_{name:13} {KNOWN[f'SPECSCOPE_{name}']}" for name in OURS),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--verbose", action="store_true", help="say more on standard error")
    parser.set_defaults(run=agent)


def agent(args: Namespace) -> int:
    """Be the sidecar until SIGTERM or SIGINT; then drain what is left."""
    from specscope_agent.settings import AgentSettings

    settings = AgentSettings.from_env(os.environ)  # a wrong one is said before the rest loads
    from specscope_agent.agent import run

    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.WARNING,
        format="specscope agent: %(message)s",
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run(settings, stop)
    return 0
