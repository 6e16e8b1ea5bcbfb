"""Wrappers on a hooked model, which its copies and pickles do not have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from specscope_hook.errors import NotSupported
from specscope_hook.plugin import read_arguments

METHODS = {
    "generate": ("inputs", "generation_config"),
    "_get_candidate_generator": ("generation_config", "input_ids"),
    "_prefill": ("input_ids", "generation_config", "model_kwargs"),
    "prepare_inputs_for_generation": (),
    "get_compiled_call": (),
    "register_forward_hook": (),
}
"""A model's methods that we need, each with the parameters that we read."""


class Wrapped:
    """A wrapper on a model's instance that shadows a method of its class."""

    def __init__(self, model: Any, name: str, original: Any, call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)  # generate asks some for their signature
        self._model, self._name, self._call = model, name, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """In a copy or pickle, become the method of the copy's own class."""
        return getattr, (self._model, self._name)


class Listener:
    """Call a function without arguments before or after a module's forward pass."""

    def __init__(self, call: Callable[[], None]) -> None:
        import torch

        self._call = call
        self._compiling = torch.compiler.is_compiling

    def __call__(self, *_: Any) -> None:
        if not self._compiling():  # in a graph we would be a break, or an error
            self._call()

    def __reduce__(self) -> tuple[Any, ...]:
        return Deaf, ()


class Deaf:
    """A listener in a copy."""

    def __call__(self, *_: Any) -> None:
        return None


def check(model: Any) -> None:
    """Raise NotSupported with the name of a missing method."""
    for name, parameters in METHODS.items():
        if not callable(getattr(type(model), name, None)):
            raise NotSupported(
                f"{type(model).__name__} has no {name} of its own; of a model that is wrapped "
                "(PEFT: get_base_model()) hook the one within"
            )
        try:
            read_arguments(getattr(model, name), *parameters)
        except NotSupported as error:
            raise NotSupported(f"{type(model).__name__}.{name} {error}") from None
    # One that goes around it, such as Whisper's, may generate several times within a call.
    if type(model).generate.__qualname__ != "GenerationMixin.generate":
        raise NotSupported(f"{type(model).__name__} has a generate of its own")
    if isinstance(vars(model).get("generate"), Wrapped):
        raise NotSupported(f"this {type(model).__name__} is recorded already")
