"""What can go wrong outside the serving process, and the exit codes of the command line.

SpecscopeError
├── UsageError          an argument or setting that means nothing
├── MissingExtra        a verb whose optional packages are not installed
├── StoreError          the store cannot be opened, read or written
│   ├── StoreBusy       an embedded store that another process owns
│   ├── StoreFull       the disk of an embedded store has less room than its floor
│   └── SchemaDrift     a table that differs from its record by more than missing columns
├── ServiceError        the service cannot start or be reached, or refuses what it is asked
│   └── NumberTaken     a policy whose number is not the next one
├── QueryRefused        SQL that the read endpoint does not run
├── InputError          a file that cannot be read as what it should be
└── DemoError           a part of the demonstration ended early

`cli.main` turns each, and what the system refuses (OSError), into one line and an exit code;
anything else is a bug.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How every command ends."""

    DONE = 0
    """It did what it was asked, and its answer, if it has one, is settled."""
    FAILED = 1
    """A named error, in one line."""
    USAGE = 2
    """An argument or a setting means nothing."""
    UNSETTLED = 3
    """It answered: nothing is decided yet, or the things compared differ."""

    @classmethod
    def of_answer(cls, settled: bool) -> ExitCode:
        """DONE when an answer is settled, UNSETTLED when it is not."""
        return cls.DONE if settled else cls.UNSETTLED


class SpecscopeError(Exception):
    """Root of everything that is said in one line."""

    exit_code = ExitCode.FAILED


class UsageError(SpecscopeError):
    """An argument or setting that means nothing."""

    exit_code = ExitCode.USAGE


class MissingExtra(SpecscopeError):
    """A verb whose optional packages are not installed."""


class StoreError(SpecscopeError):
    """The store cannot be opened, read or written."""


class StoreBusy(StoreError):
    """Another process owns the embedded store."""


class StoreFull(StoreError):
    """The disk of an embedded store has less room than its floor."""


class SchemaDrift(StoreError):
    """A table differs from its record by more than missing columns."""


class ServiceError(SpecscopeError):
    """The service cannot start or be reached, or refuses what it is asked."""


class NumberTaken(ServiceError):
    """A policy whose number is not the next one: another came first."""


class QueryRefused(SpecscopeError):
    """SQL that the read endpoint does not run."""


class InputError(SpecscopeError):
    """A file that cannot be read as what it should be."""


class DemoError(SpecscopeError):
    """A part of the demonstration ended early."""


def version() -> str | None:
    """The installed version; None in a source tree that nobody installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version("specscope")
    except PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    """The command that brings an extra's packages.

    No package index carries specscope, so its name may be asked for only if it is installed: pip
    then keeps it. A source tree is installed by its path.
    """
    return f"pip install 'specscope[{extra}]'" if version() else f"pip install -e '.[{extra}]'"
