"""The command line: find the verb, import only its module, call it, print an error in one line."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple, TextIO

from specscope.errors import ExitCode, SpecscopeError, install_command, version


class Verb(NamedTuple):
    """A verb, the module whose `add_parser(subparsers)` describes it, and the extra it needs."""

    module: str
    extra: str
    help: str


VERBS = {
    "demo": Verb(
        "specscope.demo.cli", "all", "run everything on one machine, ending with verdicts"
    ),
    "analyze": Verb(
        "specscope.analyze.cli", "", "give a verdict from logs, metrics, traces and benchmarks"
    ),
    "report": Verb("specscope.report.cli", "report", "write the weekly report"),
    "gate": Verb(
        "specscope.gate.cli", "report", "run experiments and manage the table of draft lengths"
    ),
    "replay": Verb("specscope.replay.cli", "report", "compare two servers on one trace"),
    "lossless": Verb(
        "specscope.lossless.cli", "report", "check that speculation does not change outputs"
    ),
    "serve": Verb("specscope.service.cli", "server", "run the service with its store"),
    "agent": Verb("specscope_agent.cli", "agent", "run the sidecar of the serving pod"),
    "top": Verb("specscope.top.cli", "agent", "show the rounds of running engines, live"),
    "engine": Verb(
        "specscope.engine.cli", "engine", "serve, benchmark or train the reference engine"
    ),
    "dashboards": Verb(
        "specscope_dashboards.cli", "dashboards", "render or push the Grafana dashboards"
    ),
    "doctor": Verb("specscope.doctor.cli", "", "find faults from hook to Grafana, with remedies"),
}

ERROR_ROOTS = {"SpecscopeError", "HookError", "AgentError", "EngineError"}
"""Named errors of every zone; matched by name, so that no zone is imported just to catch it."""


CLEAR_LINE = "\r\x1b[K"


class ProgressLine:
    """Progress of long work: one line on standard error, if that is a terminal."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """stream: standard error by default. clock: in seconds."""
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._name, self._began, self._done_before = "", 0.0, 0
        self._shown = False

    def __call__(self, name: str, done: int, of: int) -> None:
        """Report progress. Call it once before the first step too.

        The time left assumes equal time per step, measured since the first call with this name.
        """
        if name != self._name:
            self._name, self._began, self._done_before = name, self._clock(), done
        counted = done - self._done_before
        left = ""
        if counted > 0 and done < of:
            seconds = (self._clock() - self._began) / counted * (of - done)
            left = f", about {round(seconds) // 60}:{round(seconds) % 60:02d} left"
        self.stage(f"{name}: {done} of {of}{left}" if done < of else "")

    def stage(self, text: str) -> None:
        """Show the current stage; an empty text removes the line."""
        if (text or self._shown) and self._stream.isatty():
            self._stream.write(CLEAR_LINE + text)
            self._stream.flush()
            self._shown = bool(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Returns an ExitCode; argparse itself exits with 2 on usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in arguments if not word.startswith("-")), None)
    progress = ProgressLine()
    try:
        args = build_parser(verb).parse_args(arguments)
        args.progress = progress
        try:
            return int(args.run(args) or ExitCode.DONE)
        finally:
            progress.stage("")
    except ModuleNotFoundError as error:
        if verb not in VERBS or not VERBS[verb].extra or _ours(error.name):
            raise
        print(
            f"specscope {verb}: needs {error.name}: {install_command(VERBS[verb].extra)}",
            file=sys.stderr,
        )
        return ExitCode.FAILED
    except KeyboardInterrupt:
        print(f"specscope {verb}: interrupted", file=sys.stderr)
        return ExitCode.FAILED
    except BrokenPipeError:
        sys.stderr.close()
        return ExitCode.FAILED
    except OSError as error:  # a file or folder that cannot be read or written
        where = f"{error.filename}: " if error.filename else ""
        print(f"specscope {verb}: {where}{error.strerror or error}", file=sys.stderr)
        return ExitCode.FAILED
    except Exception as error:
        if not _named(error):
            raise
        print(f"specscope {verb}: {error}", file=sys.stderr)
        return _exit_code(error)


def build_parser(verb: str | None) -> ArgumentParser:
    """The parser with the arguments of one verb; other verbs only appear in the list."""
    parser = ArgumentParser(
        prog="specscope",
        description="Does speculative decoding pay here, and if not, why not?",
    )
    parser.add_argument(
        "--version", action="version", version=f"specscope {version() or 'unknown'}"
    )
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, entry in VERBS.items():
        if name == verb:
            import_module(entry.module).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=entry.help).set_defaults(run=_unreachable)
    return parser


def _named(error: Exception) -> bool:
    return isinstance(error, SpecscopeError) or any(
        base.__name__ in ERROR_ROOTS for base in type(error).__mro__
    )


def _exit_code(error: Exception) -> ExitCode:
    if isinstance(error, SpecscopeError):
        return error.exit_code
    names = {base.__name__ for base in type(error).__mro__}
    return ExitCode.USAGE if "SettingsError" in names else ExitCode.FAILED


def _ours(module: str | None) -> bool:
    return module is None or module.partition(".")[0].startswith("specscope")


def _unreachable(args: Namespace) -> int:
    raise AssertionError(f"the parser of {args.verb} was not loaded")


if __name__ == "__main__":
    sys.exit(main())
