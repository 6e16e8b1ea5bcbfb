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
    Sealed,
    Timer,
)

log = logging.getLogger("vllm.specscope")

_KEPT_STEPS = 64  # times that no output takes are kept for so many steps
STEPPING = MOMENTS
"""Behind the moments of a step: whether one is under way; None once nothing is timed any more."""
_NOTHING = (*(None,) * MOMENTS, False)

_Places = dict[str, tuple[int | None, int | None]]
"""The moments that lie before and behind each method."""
_FIRST: _Places = {
    "_model_forward": (VERIFY_BEGINS, None),
    "execute_model": (None, VERIFY_ENDS),
    "sample_tokens": (SAMPLE_BEGINS, SAMPLE_ENDS),
    "propose_draft_token_ids": (DRAFT_BEGINS, DRAFT_ENDS),
}
_SECOND: _Places = {
    "execute_model": (VERIFY_BEGINS, VERIFY_ENDS),
    "sample_tokens": (SAMPLE_BEGINS, SAMPLE_ENDS),
    "propose": (DRAFT_BEGINS, DRAFT_ENDS),
}


class WorkerProbe:
    """Time one model runner; a fault turns it off and is reported to the scheduler once."""

    def __init__(self, runner: Any, timer: Timer, *, follows: bool = False) -> None:
        self._runner = runner
        self._follows = follows
        self._timer = timer
        self._source, self._at_once = int(timer.source), timer.at_once
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
        targets: list[tuple[Any, str]] = [(runner, "execute_model"), (runner, "sample_tokens")]
        if not second:
            targets += [(runner, "_model_forward"), (runner, "propose_draft_token_ids")]
        elif runner.speculator is not None:
            targets.append((runner.speculator, "propose"))
        originals = {name: getattr(owner, name) for owner, name in targets}  # all, or none
        if self._follows and not second:
            drafting = "propose_draft_token_ids"
            originals[drafting] = skip_at_zero(runner, originals[drafting])
        timed = {
            name: self._timed(original, name, second=second) for name, original in originals.items()
        }
        if second:
            timed["execute_model"] = _steps_only(originals["execute_model"], timed["execute_model"])
        for owner, name in targets:
            setattr(owner, name, timed[name])

    # HOT PATH. Four of these a step, on code and data that the model has driven from the caches:
    # so all of them are one piece of code, and little is looked up in `self`. What `sample_tokens`
    # does besides drafting is sampling, acceptance and bookkeeping.

    def _timed(
        self, original: Callable[..., Any], name: str, *, second: bool = False
    ) -> Callable[..., Any]:
        """Wrap one method of a runner: note the moments before and behind it.

        second: of the V2 runner, whose forward pass has no method of its own, so that verification
        is the whole of `execute_model`. In V1 it runs from the forward pass to the logits, where
        `execute_model` returns.
        """
        before, behind = (_SECOND if second else _FIRST)[name]
        begins, ends = before == VERIFY_BEGINS, behind == SAMPLE_ENDS
        probe, moment, moments, stepping = self, self._timer.moment, self._moments, STEPPING

        def timed(*args: Any, **kwargs: Any) -> Any:
            try:
                if begins and moments[stepping] is not None:
                    if moments[stepping]:
                        probe._abandon()
                    moments[stepping] = True
                if before is not None and moments[stepping]:
                    moments[before] = moment()
            except Exception as error:
                probe._fail(error)
            result = original(*args, **kwargs)
            try:
                if behind is not None and moments[stepping]:  # else a warm-up or a graph capture
                    moments[behind] = moment()
                    if ends:
                        probe._carry(result)
                elif ends and probe._fault:
                    probe._carry_fault(result)
            except Exception as error:
                probe._fail(error)
            return result

        return timed

    def _abandon(self) -> None:
        """The step before came to no end."""
        self._end_step()
        self._keep()

    def _end_step(self) -> Sealed | None:
        """The step's tag and moments if they can be read at once; else the timer has them."""
        moments = self._moments
        tag = self._tag = self._tag + 1
        step = (tag, moments[:MOMENTS])
        moments[:] = _NOTHING
        if self._at_once:
            return step
        self._timer.seal(*step)
        return None

    def _carry(self, output: Any) -> None:
        """Attach the readings to the output, or to a later output when it arrives."""
        step, tag = self._end_step(), self._tag
        admitted = None if self._admitted is None else self._admitted.take()
        if not hasattr(output, "get_output"):
            self._put(output, tag, step, admitted)
            return
        later = output.get_output

        def get_output() -> Any:
            result = later()
            try:
                self._put(result, tag, step, admitted)
            except Exception as error:
                self._fail(error)
            return result

        output.get_output = get_output

    def _put(
        self,
        output: Any,
        tag: int,
        step: Sealed | None,
        admitted: Callable[[], dict[str, int] | None] | None,
    ) -> None:
        if not getattr(output, "req_ids", None):  # a shared constant, or another pipeline stage's
            self._keep()
            return
        if self._fault:
            self._carry_fault(output)
            return
        self._kept = 0
        steps = self._timer.taken() if step is None else [step]
        verified = None if admitted is None else admitted()
        carried: Carried = (tag, steps, self._source, "", verified)
        output._specscope = carried

    def _carry_fault(self, output: Any) -> None:
        """Tell the scheduler, once, why this worker times nothing any more."""
        if getattr(output, "req_ids", None):
            fault, self._fault = self._fault, ""
            carried: Carried = (self._tag, [], self._source, fault, None)
            output._specscope = carried

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
        self.on, self._moments[STEPPING] = False, None


def _steps_only(original: Callable[..., Any], timed: Callable[..., Any]) -> Callable[..., Any]:
    """The V2 runner's `execute_model`, timed if it computes a step: no dummy and no empty plan."""
    read = read_arguments(original, "scheduler_output", "dummy_run")

    def execute_model(*args: Any, **kwargs: Any) -> Any:
        planned, dummy = read(args, kwargs)
        step = not dummy and planned.total_num_scheduled_tokens
        return (timed if step else original)(*args, **kwargs)

    return execute_model


def _event_for(runner: Any) -> Callable[[], Any]:
    import torch

    event: Callable[[], Any] = torch.get_device_module(runner.device).Event
    return event


def _timer_for(runner: Any) -> Timer:
    import torch

    device = getattr(getattr(runner, "device", None), "type", "cpu")
    return CudaTimer(torch) if device == "cuda" else HostTimer()
