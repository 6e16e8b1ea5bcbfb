"""What the plug-ins of serving engines share: silent unless asked for, and nothing escapes."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from specscope_hook.errors import HookError, NotSupported
from specscope_hook.settings import HookSettings

Methods = Mapping[str, tuple[str, ...]]
"""Methods of a class, each with the parameters that it begins with."""


def load(install: Callable[[HookSettings], None], log: logging.Logger) -> None:
    """Install a plug-in where SPECSCOPE_RINGS is set; whatever fails is one line of the log."""
    with quietly(log):
        settings = HookSettings.from_env(os.environ)
        if settings.rings is not None:
            install(settings)


@contextmanager
def quietly(log: logging.Logger) -> Iterator[None]:
    """Whatever fails within is one line of the engine's log, and the engine goes on."""
    try:
        yield
    except HookError as error:
        log.warning("specscope is not attached, serving goes on: %s", error)
    except Exception as error:
        log.warning("specscope is not attached, serving goes on: %r", error)


def check_methods(
    owner: type[Any], methods: Methods, version: str, *, engine: str, tested: str
) -> None:
    """Whether the methods exist and begin with the parameters that we know.

    Raises NotSupported that names the first that does not.
    """
    for name, expected in methods.items():
        found = getattr(owner, name, None)
        if found is None:
            raise NotSupported(f"{engine} {version} has no {owner.__name__}.{name}")
        parameters = tuple(inspect.signature(found).parameters)
        if parameters[: len(expected)] != expected:
            raise NotSupported(
                f"{engine} {version}: {owner.__name__}.{name} takes {', '.join(parameters)}; "
                f"tested is {tested}"
            )
