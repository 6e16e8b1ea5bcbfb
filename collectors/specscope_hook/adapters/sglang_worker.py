"""SGLang, at the worker: times of drafting, the target's forward pass and acceptance.

A round of SGLang drafts, verifies, and updates the draft model for the next round. Both parts of
the draft model's work are draft time. Wrappers sit on the worker classes of a scheduler, for every
algorithm. They run in the scheduler's thread, so the scheduler's probe handles their faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specscope_hook.errors import NotSupported
from specscope_hook.timers import CudaTimer, HostTimer, Part, Timer

Guard = Callable[..., None]
Check = Callable[[type[Any], Mapping[str, tuple[str, ...]], str], None]

_FORWARD = ("batch",)
_VERIFY = {"verify": ("batch",)}
_DRAFT = {
    "draft": ("batch",),
    "_draft_extend_for_decode": ("batch", "batch_result"),
}
_LOOKUP = {"_prepare_for_speculative_decoding": ("batch",)}


class WorkerProbe:
    """Time the workers of one scheduler between `begin` and `end` of a step."""

    def __init__(self, scheduler: Any, guard: Guard) -> None:
        """guard: calls code whose exceptions must not reach the engine. Raises NotSupported for a
        device."""
        self.timer = _timer_for(str(scheduler.device))
        self._guard = guard
        self._target = scheduler.tp_worker
        self._worker = scheduler.draft_worker  # None without speculation
        self._stepping = False
        self._decoding = False
        self._verifying = False

    def begin(self, decoding: bool) -> None:
        """Begin a step, of decoding sequences or of prefill."""
        self._stepping, self._decoding, self._verifying = True, decoding, False

    def end(self, tag: int) -> None:
        """End the step; the timer returns its times with `tag`."""
        self._stepping = False
        self.timer.seal(tag)

    def hook(self, check: Check, version: str) -> None:
        """Wrap the workers' methods.

        Raises NotSupported if they are missing or unknown.
        """
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        hooks = self._hooks(check, version)
        before = {key: getattr(*key) for key in hooks}
        for (owner, name), hook in hooks.items():
            target = f"{owner.__module__}.{owner.__qualname__}.{name}"
            HookRegistry.register(target, hook, HookType.AROUND)
        HookRegistry.apply_hooks()
        for key, method in before.items():
            if getattr(*key) is method:  # another plug-in had it already, or the path is not one
                raise NotSupported(f"SGLang did not let us around {key[0].__name__}.{key[1]}")

    def _hooks(self, check: Check, version: str) -> dict[tuple[type[Any], str], Any]:
        target, worker = type(self._target), self._worker
        forward = {"forward_batch_generation": _FORWARD}
        check(target, forward, version)
        if worker is None:
            return {(target, "forward_batch_generation"): self._around_whole}
        check(type(worker), forward, version)
        hooks: dict[tuple[type[Any], str], Any] = {
            (target, "forward_batch_generation"): self._around_target,
            (type(worker), "forward_batch_generation"): self._around_whole,
        }
        if hasattr(worker, "_prepare_for_speculative_decoding"):
            check(type(worker), _LOOKUP, version)
            hooks[type(worker), "_prepare_for_speculative_decoding"] = self._around_draft
            return hooks
        drafter = type(worker.draft_worker)
        check(type(worker), _VERIFY, version)
        check(drafter, _DRAFT, version)
        hooks[type(worker), "verify"] = self._around_verify
        hooks[drafter, "draft"] = self._around_draft
        hooks[drafter, "_draft_extend_for_decode"] = self._around_draft
        return hooks

    # HOT PATH. A few of these a step: two clock readings or two events each.

    def _around_draft(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if not (self._stepping and self._decoding):
            return original(*args, **kwargs)
        self._guard("draft", self.timer.open, Part.DRAFT)
        result = original(*args, **kwargs)
        self._guard("draft", self.timer.close, Part.DRAFT)
        return result

    def _around_verify(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Time planning and the target's forward pass, then acceptance and its follow-up work."""
        if not (self._stepping and self._decoding):
            return original(*args, **kwargs)
        self._verifying = True
        self._guard("verify", self.timer.open, Part.VERIFY)
        result = original(*args, **kwargs)
        self._verifying = False
        self._guard("verify", self._close_both)
        return result

    def _around_target(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Time the target's forward pass, and ignore the draft model's worker of the same class."""
        if not (self._stepping and self._decoding) or args[0] is not self._target:
            return original(*args, **kwargs)
        if not self._verifying:
            self._guard("forward", self.timer.open, Part.VERIFY)
        result = original(*args, **kwargs)
        self._guard("forward", self._verified)
        return result

    def _around_whole(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Time a whole step. Without speculation and in prefill all of it is the target's."""
        if not self._stepping or args[0] is not (self._worker or self._target):
            return original(*args, **kwargs)
        if self._worker is None or not self._decoding:
            self._guard("forward", self.timer.open, Part.VERIFY)
        result = original(*args, **kwargs)
        self._guard("forward", self._close_both)
        return result

    def _verified(self) -> None:
        self.timer.close(Part.VERIFY)
        self.timer.open(Part.SAMPLE)

    def _close_both(self) -> None:
        """Close the open part, whichever it is."""
        self.timer.close(Part.VERIFY)
        self.timer.close(Part.SAMPLE)


def _timer_for(device: str) -> Timer:
    if device == "cpu":
        return HostTimer()
    if device != "cuda":
        raise NotSupported(f"no clock is known for a {device}")
    import torch

    return CudaTimer(torch)
