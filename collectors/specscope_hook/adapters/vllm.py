"""vLLM: the plug-in that it loads in every one of its processes.

Silent unless SPECSCOPE_RINGS is set. It wraps five methods of the scheduler (which sees
tokens), two more while a policy is followed, and in workers six of a V1 or four of a V2 model
runner's instance (which sees time); timing travels to the scheduler as an attribute of the
runner's output. Whatever does not fit, the engine serves as if we were not there, and one line
says why.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

from specscope_hook.adapters.vllm_boot import vllm_boot
from specscope_hook.adapters.vllm_lengths import LEVERS
from specscope_hook.adapters.vllm_scheduler import SchedulerProbe
from specscope_hook.adapters.vllm_worker import WorkerProbe
from specscope_hook.plugin import check_methods, load, quietly, read_arguments, row_of
from specscope_hook.settings import PREFIX, HookSettings, complaints

log = logging.getLogger("vllm.specscope")  # vLLM's own handlers print what is under `vllm`

TESTED = "0.32."
_SCHEDULER: dict[str, tuple[str, ...]] = {
    "update_from_output": ("scheduler_output", "model_runner_output"),
    "schedule": (),
    "get_grammar_bitmask": (),
    "add_request": ("request",),
    "finish_requests": (),
    **{name: (parameter,) for name, parameter in LEVERS.items()},
}
"""The scheduler's wrapped methods, each with the parameters that its wrapper reads."""
_WORKER: dict[str, tuple[str, ...]] = {"initialize_from_config": ()}
_PROBE = "_specscope"
_RAY_PREFIXES = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"

check = functools.partial(check_methods, engine="vLLM", tested=TESTED + "x")


def register() -> None:
    """Entry point, which vLLM calls once per process; never raises."""
    load(install, log)


def install(settings: HookSettings) -> None:
    """Wrap vLLM's classes in this process.

    Raises NotSupported if this vLLM lacks a wrapped method.
    """
    import vllm
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    check(Scheduler, _SCHEDULER, vllm.__version__)
    check(WorkerWrapperBase, _WORKER, vllm.__version__)
    if getattr(Scheduler, _PROBE, None) is not None:
        return
    if not vllm.__version__.startswith(TESTED):
        log.warning("specscope was tested with vLLM %sx, not %s", TESTED, vllm.__version__)
    _after_init(Scheduler, lambda scheduler: _attach(scheduler, settings))
    Scheduler._specscope = False
    _wrap_scheduler(Scheduler)
    _wrap_worker(WorkerWrapperBase, settings)
    _copy_to_ray()


def _after_init(owner: type[Any], then: Callable[[Any], object]) -> None:
    original = owner.__init__

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        with quietly(log):
            then(self)

    owner.__init__ = wrapped


def _attach(scheduler: Any, settings: HookSettings) -> None:
    """Attach a probe to a new scheduler, or log the reason for none."""
    for line in complaints(os.environ):
        log.warning("specscope: %s", line)
    import vllm

    kv_cache = scheduler.kv_cache_config
    boot = vllm_boot(scheduler.vllm_config, kv_cache, settings, vllm.__version__)
    _close_first()
    scheduler._specscope = SchedulerProbe(scheduler, settings, boot)


def _close_first() -> None:
    """Make engines close their ring before they wait for their workers, because they may not
    survive that.

    It runs this late because vLLM loads plug-ins before its engine can be imported.
    """
    from vllm.v1.engine.core import EngineCore

    original = EngineCore.shutdown
    if hasattr(original, _PROBE):
        return

    @functools.wraps(original)
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        probe: Any = getattr(getattr(self, "scheduler", None), _PROBE, False)
        if probe is not False:  # one that is off has a ring to end, too
            probe.close()
        return original(self, *args, **kwargs)

    setattr(shutdown, _PROBE, True)
    EngineCore.shutdown = shutdown


def _wrap_scheduler(owner: type[Any]) -> None:
    """Report events to the probe, if there is one; the probe never raises.

    Each wrapper passes on all of its arguments, so a new parameter does no harm.
    """
    update, schedule = owner.update_from_output, owner.schedule
    add, finish, bitmask = owner.add_request, owner.finish_requests, owner.get_grammar_bitmask
    read_update = read_arguments(update, *_SCHEDULER["update_from_output"])
    row = row_of(update, *_SCHEDULER["update_from_output"])
    read_add = read_arguments(add, *_SCHEDULER["add_request"])

    # HOT PATH. Three of these a step.

    def update_from_output(*args: Any, **kwargs: Any) -> Any:
        probe = args[0]._specscope
        if not probe or not probe.on:
            return update(*args, **kwargs)
        read = args[row]
        planned, made = read if len(read) == 2 else read_update(args, kwargs)
        try:
            lengths = bytes(map(len, made.sampled_token_ids))  # vLLM may cut the same lists
        except Exception as error:
            probe.fail(f"vLLM, tokens: {error!r}")
            return update(*args, **kwargs)
        outputs = update(*args, **kwargs)
        probe.after_update(planned, made, lengths, outputs)
        return outputs

    def schedule_(*args: Any, **kwargs: Any) -> Any:
        probe = args[0]._specscope
        if not probe or not probe.on:
            return schedule(*args, **kwargs)
        if probe.watching:
            probe.before_schedule()
        output = schedule(*args, **kwargs)
        if probe.watching or output.scheduled_new_reqs:
            probe.after_schedule(output)
        return output

    def get_grammar_bitmask(*args: Any, **kwargs: Any) -> Any:
        result = bitmask(*args, **kwargs)
        probe = args[0]._specscope
        if probe and probe.due:
            probe.catch_up()
        return result

    def add_request(*args: Any, **kwargs: Any) -> Any:
        result = add(*args, **kwargs)
        probe = args[0]._specscope
        if probe and probe.on:
            probe.admitted(*read_add(args, kwargs))
        return result

    def finish_requests(*args: Any, **kwargs: Any) -> Any:
        finished = finish(*args, **kwargs)
        probe = args[0]._specscope
        if probe and probe.on:
            probe.finished(finished)
        return finished

    wrappers = {
        "update_from_output": update_from_output,
        "schedule": schedule_,
        "get_grammar_bitmask": get_grammar_bitmask,
        "add_request": add_request,
        "finish_requests": finish_requests,
    }
    for name, wrapper in wrappers.items():
        setattr(owner, name, functools.wraps(getattr(owner, name))(wrapper))


def _wrap_worker(owner: type[Any], settings: HookSettings) -> None:
    """Wrap a worker's runner after the worker has loaded its model."""
    original = owner.initialize_from_config

    @functools.wraps(original)
    def initialize_from_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        WorkerProbe.attach(self.worker, follows=settings.request_k)
        return result

    owner.initialize_from_config = initialize_from_config


def _copy_to_ray() -> None:
    """Make vLLM copy our settings to Ray workers, which it starts after the plug-in."""
    prefixes = os.environ.get(_RAY_PREFIXES, "")
    if PREFIX not in prefixes.split(","):
        os.environ[_RAY_PREFIXES] = f"{prefixes},{PREFIX}" if prefixes else PREFIX
