"""The verb `agent`."""

from __future__ import annotations

import logging
import os
import signal
import threading
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from textwrap import wrap
from typing import Any

from specscope_hook.settings import KNOWN, SIDECAR


def add_parser(subparsers: Any) -> None:
    """Describe `specscope agent`; its settings come from the environment."""
    parser: ArgumentParser = subparsers.add_parser(
        "agent",
        help="the sidecar in the serving pod",
        description="Drains the rings in SPECSCOPE_RINGS, follows the servers in "
        "SPECSCOPE_SOURCES,\nand ships their records to SPECSCOPE_SERVICE.",
        epilog=_settings(),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--verbose", action="store_true", help="say more on standard error")
    parser.set_defaults(run=agent)


def _settings() -> str:
    lines = ["settings, from the environment:"]
    for name, setting in KNOWN.items():
        if SIDECAR in setting.readers:
            text = f"{setting.meaning} (default: {setting.default})"
            lines += [f"  {name}", *wrap(text, 84, initial_indent="    ", subsequent_indent="    ")]
    return "\n".join(lines)


def agent(args: Namespace) -> int:
    """Run the sidecar until SIGTERM or SIGINT, then drain the rings."""
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
