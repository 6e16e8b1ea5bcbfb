"""Shared code of the engines' plug-ins: off by default, and without escaping exceptions."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from specscope_hook.errors import HookError, NotSupported
from specscope_hook.settings import HookSettings

Methods = Mapping[str, tuple[str, ...]]
"""Methods of a class, each with the names of the parameters that a wrapper reads."""

ReadArguments = Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]]
"""Values of the parameters that a wrapper reads, from the args and kwargs of one call."""


def load(install: Callable[[HookSettings], None], log: logging.Logger) -> None:
    """Install a plug-in if SPECSCOPE_RINGS is set; a failure is one log line."""
    with quietly(log):
        settings = HookSettings.from_env(os.environ)
        if settings.rings is not None:
            install(settings)


@contextmanager
def quietly(log: logging.Logger) -> Iterator[None]:
    """Turn any exception inside into one line of the engine's log."""
    try:
        yield
    except HookError as error:
        log.warning("specscope is not attached, serving goes on: %s", error)
    except Exception as error:
        log.warning("specscope is not attached, serving goes on: %r", error)


def check_methods(
    owner: type[Any], methods: Methods, version: str, *, engine: str, tested: str
) -> None:
    """Check that a class has the methods, and that each has the parameters that we read.

    Order and further parameters do not matter, because a wrapper passes on all arguments.

    Raises NotSupported with the name of the first method that does not fit.
    """
    for name, parameters in methods.items():
        method = getattr(owner, name, None)
        if method is None:
            raise NotSupported(f"{engine} {version} has no {owner.__name__}.{name}")
        try:
            read_arguments(method, *parameters)
        except NotSupported as error:
            raise NotSupported(
                f"{engine} {version}: {owner.__name__}.{name} {error}; tested is {tested}"
            ) from None


def read_arguments(method: Callable[..., Any], *names: str) -> ReadArguments:
    """Return a function that reads the named parameters from the args and kwargs of a call.

    A wrapper that takes `*args, **kwargs`, reads with this and passes everything on survives a
    parameter that a newer engine adds or moves. The args are those that `method` itself gets, so
    they begin with `self` if `method` is a function of a class. A parameter that the call leaves
    out reads as its default, or None. The function never raises.

    Raises NotSupported if the method lacks one of the parameters.
    """
    places = _places(method, names)
    row, count = row_of(method, *names), len(names)

    def read_each(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        given = len(args)
        return [
            args[place] if place < given else kwargs.get(name, default)
            for place, name, default in places
        ]

    # HOT PATH. Once a call of each wrapped method.
    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        values = args[row]
        return values if len(values) == count else read_each(args, kwargs)

    return read


def row_of(method: Callable[..., Any], *names: str) -> slice:
    """Where the args of a call hold the named parameters, if they stand there side by side.

    For a wrapper that cannot afford a call of `read_arguments`' function: it takes the slice, and
    makes that call if the slice holds fewer. Empty if the parameters do not stand side by side.

    Raises NotSupported as `read_arguments` does.
    """
    places = [place for place, _, _ in _places(method, names)]
    first = places[0] if places else 0
    in_a_row = places == list(range(first, first + len(places)))
    return slice(first, first + len(places)) if in_a_row else slice(0)


def _places(method: Callable[..., Any], names: Sequence[str]) -> list[tuple[int, str, Any]]:
    """The place, name and default of each named parameter; a place beyond all args if it can only
    be given by name."""
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError) as error:
        raise NotSupported(f"has no signature to read: {error}") from None
    places = []
    for name in names:
        parameter = parameters.get(name)
        if parameter is None or parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            raise NotSupported(f"takes {', '.join(parameters) or 'nothing'}, not {name}")
        by_name_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        place = sys.maxsize if by_name_only else list(parameters).index(name)
        default = None if parameter.default is inspect.Parameter.empty else parameter.default
        places.append((place, name, default))
    return places
