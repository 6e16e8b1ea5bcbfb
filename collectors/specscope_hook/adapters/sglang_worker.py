"""SGLang, at the worker: how long drafting, the target's forward pass and acceptance took.

A round of SGLang drafts, verifies, and brings the draft model up to date for the next one;
both halves of the draft model's work are its draft time. Hooks sit on the classes of the
workers that a scheduler was built with, whatever the algorithm; on their own thread, so a
fault of theirs is the scheduler's.
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
    """Times the workers of one scheduler between `begin` and `end` of a step."""

    def __init__(self, scheduler: Any, guard: Guard) -> None:
        """guard: calls what may not reach the engine. Raises NotSupported for a device."""
        self.timer = _timer_for(str(scheduler.device))
        self._guard = guard
        self._target = scheduler.tp_worker
        self._worker = scheduler.draft_worker  # None without speculation
        self._stepping = False
        self._decoding = False
        self._verifying = False

    def begin(self, decoding: bool) -> None:
        """A step is launched: of sequences that decode, or of prompts."""
        self._stepping, self._decoding, self._verifying = True, decoding, False

    def end(self, tag: int) -> None:
        """It has been; `tag` comes back from the timer with its times."""
        self._stepping = False
        self.timer.seal(tag)

    def hook(self, check: Check, version: str) -> None:
        """Go around the workers' methods.

        Raises NotSupported where they are not as we know them, or not to be had.
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
        """Planning and the target's forward pass, then acceptance and what follows from it."""
        if not (self._stepping and self._decoding):
            return original(*args, **kwargs)
        self._verifying = True
        self._guard("verify", self.timer.open, Part.VERIFY)
        result = original(*args, **kwargs)
        self._verifying = False
        self._guard("verify", self._close_both)
        return result

    def _around_target(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The forward pass itself. The draft model has a worker of the same class: not ours."""
        if not (self._stepping and self._decoding) or args[0] is not self._target:
            return original(*args, **kwargs)
        if not self._verifying:
            self._guard("forward", self.timer.open, Part.VERIFY)
        result = original(*args, **kwargs)
        self._guard("forward", self._verified)
        return result

    def _around_whole(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A step's work. Without speculation, and on prompts, all of it is the target's."""
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
        """Whichever is open; the other is not touched."""
        self.timer.close(Part.VERIFY)
        self.timer.close(Part.SAMPLE)


def _timer_for(device: str) -> Timer:
    if device == "cpu":
        return HostTimer()
    if device != "cuda":
        raise NotSupported(f"no clock is known for a {device}")
    import torch

    return CudaTimer(torch)
