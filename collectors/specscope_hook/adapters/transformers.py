"""Hugging Face transformers: `generate`, assisted or plain, one sequence at a time.

It wraps methods of one model's instance and two methods of each candidate generator, and listens to
the model's forward pass. Arguments and results of the wrapped methods do not change. Several
threads may generate with one model. Each has its own call, and one at a time writes to the ring.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from specscope_hook.adapters.transformers_boot import transformers_boot
from specscope_hook.adapters.transformers_call import K_MOST, Call
from specscope_hook.adapters.transformers_requests import Asked, prompt_of
from specscope_hook.adapters.transformers_wraps import Listener, Wrapped, check
from specscope_hook.clock import SystemClock
from specscope_hook.errors import NotSupported
from specscope_hook.plugin import read_arguments
from specscope_hook.recorder import Recorder
from specscope_hook.timers import CudaTimer, HostTimer, NoTimer, Timer

__all__ = ["TransformersHook", "transformers_boot"]

log = logging.getLogger("specscope")


class _Thread(threading.local):
    """The state of one generating thread."""

    def __init__(self) -> None:
        self.inside = False  # an assistant may be the same model, and calls `generate` within
        self.call: Call | None = None
        self.arrived = 0
        self.asked: dict[str, Any] = {}
        self.timer: Timer | None = None
        self.label: str | None = None
        self.request_id = ""


class TransformersHook:
    """Record one model's generation.

    label: class of the calls in all threads, unless `request` sets another.
    """

    def __init__(self, model: Any, recorder: Recorder) -> None:
        """Wrap a model; a recorder serves one model. Raises NotSupported for an unknown kind of
        model."""
        check(model)
        self.label = ""
        self._model = model
        self._recorder = recorder
        self._numbers = itertools.count(1)
        self._thread = _Thread()
        self._lock = threading.Lock()
        self._process = os.getpid()
        around = {
            "generate": self._around_generate,
            "_get_candidate_generator": self._around_candidate_generator,
            "_prefill": self._around_prefill,
            "prepare_inputs_for_generation": self._around_prepare,
            "get_compiled_call": self._around_compiled,
        }
        self._before = {name: vars(model).get(name) for name in around}
        for name, call in around.items():
            original = getattr(model, name)
            setattr(model, name, Wrapped(model, name, original, functools.partial(call, original)))
        self._listeners = (
            model.register_forward_pre_hook(Listener(lambda: self._on_call(Call.forward_begins))),
            model.register_forward_hook(Listener(lambda: self._on_call(Call.forward_ends))),
        )

    def remove(self) -> None:
        """Remove all wrappers from the model."""
        for name, before in self._before.items():
            delattr(self._model, name)
            if before is not None:
                setattr(self._model, name, before)
        for listener in self._listeners:
            listener.remove()

    @contextmanager
    def request(self, label: str = "", id: str = "") -> Iterator[None]:
        """Set the class of this thread's calls inside a `with` block, and the id of the first
        one."""
        thread, before = self._thread, (self._thread.label, self._thread.request_id)
        thread.label, thread.request_id = label, id
        try:
            yield
        finally:
            thread.label, thread.request_id = before

    def _do(self, call: Callable[..., None], *args: Any) -> None:
        """Run a hook without letting exceptions escape. A forked child, which has no ring, never
        waits for the lock."""
        if not self._recorder.on or os.getpid() != self._process:
            return
        with self._lock:
            try:
                self._recorder.claim()
                call(*args)
            except NotSupported as error:
                self._recorder.detach(f"transformers: {error}")
            except Exception as error:
                self._recorder.detach(f"transformers: {error!r}")

    def _on_call(self, what: Callable[..., None], *args: Any) -> None:
        """Pass an event to this thread's call, if it is recorded."""
        if self._thread.call is not None:
            self._do(what, self._thread.call, *args)

    # --- a call of generate --------------------------------------------------------------

    def _around_generate(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        thread = self._thread
        if thread.inside:
            return original(*args, **kwargs)
        thread.inside, thread.call = True, None
        result = None
        try:
            self._do(self._enter, original, args, kwargs)
            result = original(*args, **kwargs)
            return result
        finally:
            self._do(self._leave, result)
            thread.inside, thread.call, thread.asked = False, None, {}

    def _enter(self, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        thread = self._thread
        thread.arrived = SystemClock.monotonic_ns()
        try:
            named = inspect.signature(original).bind(*args, **kwargs).arguments
        except TypeError:  # `generate` says so itself
            return
        thread.asked = named | named.pop("kwargs", {})

    def _around_candidate_generator(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        if self._thread.inside:
            self._do(self._assisted, original, args, kwargs, made)
        return made

    def _assisted(self, original: Any, args: Any, kwargs: Any, made: Any) -> None:
        named = inspect.signature(original).bind(*args, **kwargs).arguments
        config, input_ids = named["generation_config"], named["input_ids"]
        longest = config.prompt_lookup_num_tokens or 0
        if longest > K_MOST:
            log.warning("specscope does not record drafts of more than %d tokens", K_MOST)
            return
        self._begin(config, input_ids, named.get("model_kwargs") or {})
        if self._thread.call is None:
            return
        get_candidates, update = made.get_candidates, made.update_candidate_strategy

        read_text = read_arguments(get_candidates, "input_ids")
        read_matches = read_arguments(update, "num_matches")

        def timed_candidates(*args: Any, **kwargs: Any) -> Any:
            self._on_call(Call.round_begins)
            result = get_candidates(*args, **kwargs)
            self._on_call(Call.drafted, result, *read_text(args, kwargs))
            return result

        def timed_update(*args: Any, **kwargs: Any) -> Any:
            self._on_call(Call.round_ends, *read_matches(args, kwargs))
            return update(*args, **kwargs)

        made.get_candidates, made.update_candidate_strategy = timed_candidates, timed_update

    def _around_prefill(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        thread = self._thread
        if not thread.inside or thread.call is not None:
            return original(*args, **kwargs)
        self._do(self._plain, original, args, kwargs)
        result = original(*args, **kwargs)
        self._on_call(Call.prefill_ends)
        return result

    def _plain(self, original: Any, args: Any, kwargs: Any) -> None:
        named = inspect.signature(original).bind(*args, **kwargs).arguments
        config = named["generation_config"]
        twice = (config.guidance_scale or 1) != 1  # a step is then two forward passes
        if config.is_assistant or (config.num_beams or 1) > 1 or twice:
            return
        if self._thread.asked.get("custom_generate"):
            return
        self._begin(config, named["input_ids"], named["model_kwargs"])
        if self._thread.call is not None:  # the lock is ours already
            self._thread.call.prefill_begins()

    def _begin(self, config: Any, input_ids: Any, model_kwargs: Mapping[str, Any]) -> None:
        """Begin a recorded call: one sequence, on ranks that do not wait for others."""
        thread, recorder = self._thread, self._recorder
        if input_ids.shape[0] != 1 or thread.asked.get("synced_gpus"):
            return
        id_, thread.request_id = thread.request_id, ""
        asked = Asked(self._model, config, input_ids, thread.asked, model_kwargs)
        prompt = prompt_of(asked)
        admission = asked.admit(
            recorder,
            prompt,
            id_=id_ or f"generate-{next(self._numbers)}",
            label=self.label if thread.label is None else thread.label,
            admitted_at=SystemClock.unix_ns() - (SystemClock.monotonic_ns() - thread.arrived),
        )
        if admission is None:
            return
        if thread.timer is None:
            thread.timer = _timer_for(self._model)
        thread.call = Call(recorder, thread.timer, admission, prompt, thread.arrived)

    def _leave(self, result: Any) -> None:
        call = self._thread.call
        if call is None:
            return
        tokens = None
        if result is not None:
            sequence = getattr(result, "sequences", result)[0]
            tokens = sequence[call.given :].tolist()
        call.end(tokens)

    # --- within a call -------------------------------------------------------------------

    def _around_prepare(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._on_call(Call.step_begins)
        return original(*args, **kwargs)

    def _around_compiled(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)  # whose graph does not hold our listeners

        def timed(*inputs: Any, **named: Any) -> Any:
            self._on_call(Call.forward_begins)
            result = compiled(*inputs, **named)
            self._on_call(Call.forward_ends)
            return result

        return timed


def _timer_for(model: Any) -> Timer:
    kind = model.device.type
    if kind == "cpu":
        return HostTimer()
    if kind != "cuda":  # the device runs behind the host, and we know no clock of it
        return NoTimer()
    import torch

    return CudaTimer(torch)
