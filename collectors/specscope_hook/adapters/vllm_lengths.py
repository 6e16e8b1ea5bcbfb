"""vLLM: apply the policy's draft lengths, if SPECSCOPE_REQUEST_K is on.

Two features of vLLM are used. First, a step has one draft length for all sequences. The hook lowers
it to the longest allowed one, which saves drafting and verification. Second, the hook trims each
sequence's draft to its own length before planning, which saves verification.

Both are methods of the scheduler. They are wrapped on the instance, only while a policy is in
force.
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
    """The draft length of each sequence of a step under a policy."""

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
        """Apply the policy in force from the next step, or remove all wrappers."""
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
        """Wrap a method of this scheduler so that it first passes its arguments to `call`."""
        original, guarded = getattr(self._scheduler, name), self._guarded
        read = read_arguments(original, LEVERS[name])

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            guarded(what, call, *read(args, kwargs))
            return original(*args, **kwargs)

        setattr(self._scheduler, name, wrapper)

    def plan(self, output: Any) -> None:
        """Decide the lengths of a step in planning, and lower its draft length."""
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
        """Trim returned drafts to each sequence's own length."""
        if not self._of:
            return
        for id_, tokens in zip(drafts.req_ids, drafts.draft_token_ids, strict=True):
            k = self._of.get(id_)
            if k is not None:
                del tokens[k:]


def why_not_followed(config: Any) -> str:
    """The reason that this engine cannot follow a policy; empty if it can.

    config: VllmConfig. Data-parallel ranks of a dense model are separate engines of size 1.
    """
    parallel = getattr(config, "parallel_config", None)
    if getattr(parallel, "data_parallel_size", 1) > 1:
        return "data-parallel ranks step together, and each would draw an arm of its own"
    return ""


def why_not_whole(config: Any) -> str:
    """The reason that this engine cannot lower a step's draft length; empty if it can.

    config: VllmConfig. The limits are those of vLLM's own batch-size schedule.
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
    """Skip a V1 runner's n-gram lookup in steps with draft length 0.

    vLLM calls the lookup anyway, which takes longer than a small step's sampling; then k = 0 would
    not be target-only. Lookup has no state between steps, so skipping is safe. Other methods run: a
    draft model must keep its cache complete, and suffix decoding learns from each step.
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
