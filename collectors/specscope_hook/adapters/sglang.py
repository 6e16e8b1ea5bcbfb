"""The plug-in for SGLang.

Without SPECSCOPE_RINGS it does nothing. It uses SGLang's HookRegistry to wrap seven methods of the
scheduler's class. After a scheduler is built, it also wraps the methods of its workers' classes
that draft and verify. Scheduler and worker share a process, so tokens and times meet there. If
anything does not fit, SGLang serves without the hook, and one log line gives the reason.

It follows the source of SGLang 0.5.23. It was run in SGLang on a CPU without speculation. With
speculation it was run on SGLang's registry with stand-ins. It never ran on a GPU.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

from specscope_hook.adapters.sglang_boot import sglang_boot
from specscope_hook.adapters.sglang_refuse import records_here, refusal
from specscope_hook.adapters.sglang_scheduler import SchedulerProbe
from specscope_hook.errors import NotSupported
from specscope_hook.plugin import check_methods, load, quietly, read_arguments
from specscope_hook.settings import HookSettings, complaints

log = logging.getLogger("sglang.specscope")

TESTED = "0.5.23"
SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
METHODS: dict[str, tuple[str, ...]] = {
    "__init__": (),
    "run_event_loop": (),
    "_add_request_to_queue": ("req",),
    "send_abort_output": ("req",),
    "run_batch": ("batch",),
    "process_batch_result": ("batch", "result"),
    "on_idle": (),
}
"""The scheduler's wrapped methods, each with the parameters that its wrapper reads."""
_PROBE = "_specscope"

check = functools.partial(check_methods, engine="SGLang", tested=TESTED)


def register() -> None:
    """Entry point, which SGLang calls in each process; never raises."""
    load(install, log)


def install(settings: HookSettings) -> None:
    """Register the hooks; SGLang applies them after all plug-ins were called.

    Raises NotSupported if this SGLang lacks a wrapped method.
    """
    import sglang
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    check(Scheduler, METHODS, sglang.__version__)
    if getattr(Scheduler, _PROBE, None) is not None:
        return
    if sglang.__version__ != TESTED:
        log.warning("specscope was written for SGLang %s, not %s", TESTED, sglang.__version__)
    Scheduler._specscope = False
    for name, hook in _hooks(Scheduler, settings).items():
        HookRegistry.register(f"{SCHEDULER}.{name}", hook, HookType.AROUND)


def _attach(scheduler: Any, settings: HookSettings) -> None:
    """Attach a probe to a new scheduler, on one of the ranks that step together."""
    import sglang

    for line in complaints(os.environ):
        log.warning("specscope: %s", line)
    if not records_here():
        return
    if reason := refusal(scheduler):
        raise NotSupported(reason)
    boot = sglang_boot(scheduler, settings, sglang.__version__)
    scheduler._specscope = SchedulerProbe(scheduler, settings, boot, check)


def _hooks(scheduler: type[Any], settings: HookSettings) -> dict[str, Callable[..., Any]]:
    """The wrappers. Each takes the wrapped method first, as HookType.AROUND requires.

    Each passes on all of its arguments, so a new parameter does no harm.
    """
    read = {
        name: read_arguments(getattr(scheduler, name), *names) for name, names in METHODS.items()
    }

    def init(original: Any, *args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        with quietly(log):
            _attach(args[0], settings)

    def run_event_loop(original: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            if args[0]._specscope:
                args[0]._specscope.close()

    def add_request_to_queue(original: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0]._specscope:
            args[0]._specscope.queued(*read["_add_request_to_queue"](args, kwargs))
        return original(*args, **kwargs)

    def send_abort_output(original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if args[0]._specscope:
            args[0]._specscope.aborted(*read["send_abort_output"](args, kwargs))
        return result

    def run_batch(original: Any, *args: Any, **kwargs: Any) -> Any:
        probe = args[0]._specscope
        if not probe:
            return original(*args, **kwargs)
        (batch,) = read["run_batch"](args, kwargs)
        probe.before_launch(batch)
        result = original(*args, **kwargs)
        probe.after_launch(batch, result)
        return result

    def process_batch_result(original: Any, *args: Any, **kwargs: Any) -> Any:
        probe = args[0]._specscope
        if not probe:
            return original(*args, **kwargs)
        batch, result = read["process_batch_result"](args, kwargs)
        probe.before_results(batch, result)
        processed = original(*args, **kwargs)
        probe.after_results(result)
        return processed

    def on_idle(original: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0]._specscope:
            args[0]._specscope.idle()
        return original(*args, **kwargs)  # which may sleep

    return {
        "__init__": init,
        "run_event_loop": run_event_loop,
        "_add_request_to_queue": add_request_to_queue,
        "send_abort_output": send_abort_output,
        "run_batch": run_batch,
        "process_batch_result": process_batch_result,
        "on_idle": on_idle,
    }
