"""vLLM, in a worker: times of the parts of each step.

It wraps methods of one model runner's instance and numbers the steps. Clock readings travel to the
scheduler as attribute `_specscope` of the runner's output. The scheduler computes their differences
while the worker computes. Both runners were tested on a CPU, neither on a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from specscope_hook.adapters.vllm_adaptive import AdmittedDrafts
from specscope_hook.adapters.vllm_lengths import skip_at_zero
from specscope_hook.adapters.vllm_steps import Carried
from specscope_hook.plugin import read_arguments
from specscope_hook.timers import (
    DRAFT_BEGINS,
    DRAFT_ENDS,
    MOMENTS,
    SAMPLE_BEGINS,
    SAMPLE_ENDS,
    VERIFY_BEGINS,
    VERIFY_ENDS,
    CudaTimer,
    HostTimer,
    Timer,
)

log = logging.getLogger("vllm.specscope")

_KEPT_STEPS = 64  # times that no output takes are kept for so many steps
STEPPING = MOMENTS
"""Behind the moments of a step: whether one is under way."""
_NOTHING = (*(None,) * MOMENTS, False)


class WorkerProbe:
    """Time one model runner; a fault turns it off and is reported to the scheduler once."""

    def __init__(self, runner: Any, timer: Timer, *, follows: bool = False) -> None:
        self._runner = runner
        self._follows = follows
        self._timer = timer
        self._source = int(timer.source)
        self._tag = 0
        self._kept = 0  # steps since times last rode on an output
        self._moments: list[Any] = list(_NOTHING)
        self._fault = ""
        self._admitted: AdmittedDrafts | None = None
        self.on = True

    @classmethod
    def attach(cls, worker: Any, *, follows: bool = False) -> None:
        """Wrap a worker's runner; if a method is missing, log one line.

        follows: whether policies are followed; then a step at k = 0 drafts nothing, if possible.
        """
        try:
            runner = worker.model_runner
            probe = cls(runner, _timer_for(runner), follows=follows)
            probe._wrap_runner()
        except Exception as error:
            log.warning("specscope has no times from this worker: %r", error)
            return
        manager = getattr(runner, "adaptive_verification", None)
        if manager is not None:
            try:
                probe._admitted = AdmittedDrafts(manager, _event_for(runner))
            except Exception as error:
                log.warning("specscope does not see which drafts are verified: %r", error)

    def _wrap_runner(self) -> None:
        runner = self._runner
        second = hasattr(runner, "speculator")  # the V2 runner
        targets = [(runner, "execute_model"), (runner, "sample_tokens")]
        if not second:
            targets += [(runner, "_model_forward"), (runner, "propose_draft_token_ids")]
        elif runner.speculator is not None:
            targets.append((runner.speculator, "propose"))
        originals = [getattr(owner, name) for owner, name in targets]  # all, or none is wrapped
        if self._follows and not second:
            originals[-1] = skip_at_zero(runner, originals[-1])
        wrappers: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
            "execute_model": self._around_execute_v2 if second else self._around_execute,
            "sample_tokens": self._around_sample_tokens,
            "_model_forward": self._before_forward,
            "propose_draft_token_ids": self._around_draft,
            "propose": self._around_draft,
        }
        wrapped = [
            wrappers[name](original) for (_, name), original in zip(targets, originals, strict=True)
        ]
        for (owner, name), wrapper in zip(targets, wrapped, strict=True):
            setattr(owner, name, wrapper)

    # HOT PATH. Four of these a step, six moments, on code and data that the model has driven from
    # the caches: so nothing is looked up in `self`. What `sample_tokens` does besides drafting is
    # sampling, acceptance and bookkeeping.

    def _around_draft(self, original: Callable[..., Any]) -> Callable[..., Any]:
        moment, moments = self._timer.moment, self._moments

        def timed(*args: Any, **kwargs: Any) -> Any:
            if not moments[STEPPING]:  # a warm-up, a graph capture or a dummy batch
                return original(*args, **kwargs)
            try:
                moments[DRAFT_BEGINS] = moment()
            except Exception as error:
                self._fail(error)
            result = original(*args, **kwargs)
            try:
                moments[DRAFT_ENDS] = moment()
            except Exception as error:
                self._fail(error)
            return result

        return timed

    def _before_forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        moment, moments = self._timer.moment, self._moments

        def timed(*args: Any, **kwargs: Any) -> Any:
            if moments[STEPPING]:
                try:
                    moments[VERIFY_BEGINS] = moment()
                except Exception as error:
                    self._fail(error)
            return original(*args, **kwargs)

        return timed

    def _around_execute(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """V1: verification lasts from the forward pass to the logits, at the return of this
        method."""
        read = read_arguments(original, "scheduler_output")
        moment, moments = self._timer.moment, self._moments

        def timed(*args: Any, **kwargs: Any) -> Any:
            try:
                self._begin(*read(args, kwargs))
            except Exception as error:
                self._fail(error)
            result = original(*args, **kwargs)
            if moments[STEPPING]:
                try:
                    moments[VERIFY_ENDS] = moment()
                except Exception as error:
                    self._fail(error)
            return result

        return timed

    def _around_execute_v2(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """V2: verification is the whole method, because its forward pass has no separate method."""
        read = read_arguments(original, "scheduler_output", "dummy_run")
        moment, moments = self._timer.moment, self._moments

        def timed(*args: Any, **kwargs: Any) -> Any:
            scheduler_output, dummy_run = read(args, kwargs)
            if dummy_run:
                return original(*args, **kwargs)
            try:
                self._begin(scheduler_output)
                if moments[STEPPING]:
                    moments[VERIFY_BEGINS] = moment()
            except Exception as error:
                self._fail(error)
            result = original(*args, **kwargs)
            if moments[STEPPING]:
                try:
                    moments[VERIFY_ENDS] = moment()
                except Exception as error:
                    self._fail(error)
            return result

        return timed

    def _begin(self, scheduler_output: Any) -> None:
        moments = self._moments
        if moments[STEPPING]:  # the step before came to no end
            self._timer.seal(self._tag, moments[:MOMENTS])
            moments[:] = _NOTHING
            self._keep()
        if self.on and scheduler_output.total_num_scheduled_tokens > 0:
            moments[STEPPING] = True
            self._tag += 1

    def _around_sample_tokens(self, original: Callable[..., Any]) -> Callable[..., Any]:
        moment, moments = self._timer.moment, self._moments

        def timed(*args: Any, **kwargs: Any) -> Any:
            if moments[STEPPING]:
                try:
                    moments[SAMPLE_BEGINS] = moment()
                except Exception as error:
                    self._fail(error)
            output = original(*args, **kwargs)
            if moments[STEPPING] or self._fault:
                try:
                    if self.on:
                        moments[SAMPLE_ENDS] = moment()
                    self._carry(output)
                except Exception as error:
                    self._fail(error)
            return output

        return timed

    def _carry(self, output: Any) -> None:
        """Attach the readings to the output, or to a later output when it arrives."""
        tag, moments = self._tag, self._moments
        if self.on:
            self._timer.seal(tag, moments[:MOMENTS])
        moments[:] = _NOTHING
        admitted = None if self._admitted is None else self._admitted.take()
        if not hasattr(output, "get_output"):
            self._put(output, tag, admitted)
            return
        later = output.get_output

        def get_output() -> Any:
            result = later()
            try:
                self._put(result, tag, admitted)
            except Exception as error:
                self._fail(error)
            return result

        output.get_output = get_output

    def _put(
        self, output: Any, tag: int, admitted: Callable[[], dict[str, int] | None] | None
    ) -> None:
        if not getattr(output, "req_ids", None):  # a shared constant, or another pipeline stage's
            self._keep()
            return
        self._kept = 0
        steps = [] if self._fault else self._timer.taken()
        verified = None if admitted is None else admitted()
        carried: Carried = (tag, steps, self._source, self._fault, verified)
        output._specscope = carried
        self._fault = ""

    def _keep(self) -> None:
        """Keep times for the next output, up to a limit."""
        self._kept += 1
        if self._kept > _KEPT_STEPS:
            self._timer.taken()

    def _fail(self, error: Exception) -> None:
        """Turn the timing off after the first fault."""
        if self.on:
            log.error("specscope times nothing from here on, serving goes on: %r", error)
            self._fault = f"worker: {error!r}"
        self.on = self._moments[STEPPING] = False


def _event_for(runner: Any) -> Callable[[], Any]:
    import torch

    event: Callable[[], Any] = torch.get_device_module(runner.device).Event
    return event


def _timer_for(runner: Any) -> Timer:
    import torch

    device = getattr(getattr(runner, "device", None), "type", "cpu")
    return CudaTimer(torch) if device == "cuda" else HostTimer()
