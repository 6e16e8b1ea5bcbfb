"""Exceptions outside the serving process, and the exit codes of the command line.

SpecscopeError
├── UsageError          an invalid argument or setting
├── MissingExtra        the optional packages of a verb are not installed
├── StoreError          the store cannot be opened, read or written
│   ├── StoreBusy       an embedded store that another process owns
│   ├── StoreFull       the disk of an embedded store is too full
│   └── SchemaDrift     a table that differs from its record by more than missing columns
├── ServiceError        the service cannot start, is unreachable, or refuses a call
│   └── NumberTaken     a policy whose number is not the next one
├── QueryRefused        SQL that the read endpoint does not run
├── InputError          a file is not readable in its expected format
└── DemoError           a part of the demonstration ended early

`cli.main` turns each of them, and OSError, into one line and an exit code; any other exception is a
bug.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code of every command."""

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
        """DONE for a settled answer, otherwise UNSETTLED."""
        return cls.DONE if settled else cls.UNSETTLED


class SpecscopeError(Exception):
    """Root of all errors that are reported in one line."""

    exit_code = ExitCode.FAILED


class UsageError(SpecscopeError):
    """An invalid argument or setting."""

    exit_code = ExitCode.USAGE


class MissingExtra(SpecscopeError):
    """The optional packages of a verb are not installed."""


class StoreError(SpecscopeError):
    """The store cannot be opened, read or written."""


class StoreBusy(StoreError):
    """Another process owns the embedded store."""


class StoreFull(StoreError):
    """The disk of an embedded store has less free space than its minimum."""


class SchemaDrift(StoreError):
    """A table differs from its record by more than missing columns."""


class ServiceError(SpecscopeError):
    """The service cannot start, is unreachable, or refuses a call."""


class NumberTaken(ServiceError):
    """A policy's number is not the next one, because another policy was first."""


class QueryRefused(SpecscopeError):
    """SQL that the read endpoint does not run."""


class InputError(SpecscopeError):
    """A file is not readable in its expected format."""


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
    """The command that installs an extra's packages.

    No package index has specscope. So pip may get its name only if it is installed, because pip
    then keeps it. A source tree is installed by its path.
    """
    return f"pip install 'specscope[{extra}]'" if version() else f"pip install -e '.[{extra}]'"
