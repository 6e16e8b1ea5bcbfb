"""vLLM: the policy's draft lengths, where SPECSCOPE_REQUEST_K is on.

Two levers, both vLLM's own. A step says how many tokens are to be drafted in it, for all its
sequences alike: it is lowered to the longest that any of them may have, which saves drafting
and verification. What is drafted beyond a sequence's own length is cut before it is planned,
which saves its verification.

Both are methods of the scheduler. They are wrapped on the instance, and only while a policy is in
force: without one, nothing of ours runs there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from specscope_hook.adapters.vllm_requests import Requests
from specscope_hook.blocks import Blocks
from specscope_hook.errors import NotSupported
from specscope_hook.plugin import read_arguments

log = logging.getLogger("vllm.specscope")


LEVERS = {"_update_after_schedule": "scheduler_output", "update_draft_token_ids": "draft_token_ids"}
"""Methods that are wrapped under a policy, each with the parameter that its wrapper reads."""

Guarded = Callable[[str, Callable[..., None], Any], None]
"""Calls the second with the third; a fault is named by the first, and goes no further."""


class Lengths:
    """The draft length of each sequence of a step, while a policy is followed."""

    def __init__(
        self, scheduler: Any, requests: Requests, blocks: Blocks, guarded: Guarded
    ) -> None:
        self._scheduler = scheduler
        self._guarded = guarded
        self._following = False
        self._requests = requests
        self._blocks = blocks
        self._of: dict[str, int] = {}
        try:
            reason = why_not_whole(scheduler.vllm_config)
        except AttributeError as error:
            reason = f"this vLLM's configuration is not the one that is known: {error}"
        self._whole = not reason
        if reason:
            log.warning("specscope cuts drafts and does not save their drafting: %s", reason)

    def follow(self, following: bool) -> None:
        """Follow the policy in force from the next step on, or touch nothing any more."""
        if following == self._following:
            return
        self._following = following
        self._of = {}
        if following:
            # Before AsyncScheduler, which counts the drafts of the next step in the first.
            self._before("_update_after_schedule", "draft length", self.plan)
            self._before("update_draft_token_ids", "trim", self.trim)
        else:
            for name in LEVERS:
                vars(self._scheduler).pop(name, None)

    def _before(self, name: str, what: str, call: Callable[..., None]) -> None:
        """Have a method of this scheduler tell `call` what it was given, first."""
        original, guarded = getattr(self._scheduler, name), self._guarded
        read = read_arguments(original, LEVERS[name])

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            guarded(what, call, *read(args, kwargs))
            return original(*args, **kwargs)

        setattr(self._scheduler, name, wrapper)

    def plan(self, output: Any) -> None:
        """Decide for the sequences of a step that is being planned, and lower what it drafts."""
        self._of = lengths = {}
        if self._blocks.gate is None:
            return
        running, waiting = self._scheduler.get_request_counts()
        for id_ in output.num_scheduled_tokens:
            state = self._requests.running.get(id_)
            if state is None:
                continue
            context = state.request.num_tokens
            k = self._blocks.k(state.label, context, state.output, running, waiting)
            if k is not None:
                lengths[id_] = k
        if self._whole and lengths and len(lengths) == len(output.num_scheduled_tokens):
            longest = max(lengths.values())
            if longest < output.num_spec_tokens_to_schedule:
                output.num_spec_tokens_to_schedule = longest

    def trim(self, drafts: Any) -> None:
        """Cut drafts that have come back to each sequence's own length."""
        if not self._of:
            return
        for id_, tokens in zip(drafts.req_ids, drafts.draft_token_ids, strict=True):
            k = self._of.get(id_)
            if k is not None:
                del tokens[k:]


def why_not_followed(config: Any) -> str:
    """Why no policy can be followed in this engine; empty if one can be.

    config: VllmConfig. Data-parallel ranks of a dense model are engines of their own, of size 1.
    """
    parallel = getattr(config, "parallel_config", None)
    if getattr(parallel, "data_parallel_size", 1) > 1:
        return "data-parallel ranks step together, and each would draw an arm of its own"
    return ""


def why_not_whole(config: Any) -> str:
    """Why a step's draft length may not be lowered in this engine; empty if it may.

    config: VllmConfig. These are vLLM's own limits on its batch-size schedule.
    """
    spec = config.speculative_config
    if spec is None:
        return "this engine does not speculate"
    if spec.parallel_drafting or spec.method in _FIXED:
        return f"{spec.method} drafts a fixed number of tokens"
    graphs = config.compilation_config.cudagraph_mode
    if graphs.has_full_cudagraphs() and not config.use_v2_model_runner:
        return "the V1 runner's full CUDA graphs verify a fixed number of tokens"
    return ""


def skip_at_zero(runner: Any, propose: Callable[..., Any]) -> Callable[..., Any]:
    """A V1 runner's drafting, but n-gram lookup not called in a step that is to draft nothing.

    vLLM calls it all the same, and the call alone takes longer than a small step's sampling: k = 0
    would not be target-only. Lookup keeps nothing from step to step, so nothing is missed by it.
    Other methods are left alone: a draft model's pass keeps its cache whole, and suffix decoding
    learns from each step.
    """
    if getattr(getattr(runner, "speculative_config", None), "method", None) != "ngram":
        return propose
    try:
        read = read_arguments(propose, "scheduler_output", "sampled_token_ids")
    except NotSupported:
        return propose

    def skipping(*args: Any, **kwargs: Any) -> Any:
        planned, sampled = read(args, kwargs)
        if getattr(planned, "num_spec_tokens_to_schedule", 1) == 0 and isinstance(sampled, list):
            return [[] for _ in sampled]
        return propose(*args, **kwargs)

    return skipping


_FIXED = ("dflash", "dspark", "extract_hidden_states", "custom_class")
