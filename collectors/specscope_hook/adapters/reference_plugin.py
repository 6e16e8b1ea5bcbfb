"""The reference engine's entry point: record a served engine, and apply the policy.

Without SPECSCOPE_RINGS it does nothing. After any fault the engine keeps serving, and one log line
gives the reason.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from typing import Any

from specscope_hook.adapters.reference import ReferenceObserver
from specscope_hook.attach import attach
from specscope_hook.blocks import Blocks
from specscope_hook.boot import hook_version, new_boot
from specscope_hook.facts import cuda_devices
from specscope_hook.plugin import quietly
from specscope_hook.records import Boot
from specscope_hook.settings import HookSettings, complaints

log = logging.getLogger("specscope")


def register(info: Any) -> tuple[list[ReferenceObserver], PolicyGate] | None:
    """Attach to an engine; None if the hook is off.

    The ring is closed at the end of the process, after its last answer.

    info: see the engine's EngineInfo.
    """
    with quietly(log):
        for complaint in complaints(os.environ):
            log.warning("specscope: %s", complaint)
        settings = HookSettings.from_env(os.environ)
        if settings.rings is None:
            return None
        boot = boot_of(info, settings)
        ring, recorder = attach(settings, boot)
        atexit.register(recorder.close)
        blocks = Blocks(ring, recorder, boot.replica, boot.boot)
        return [ReferenceObserver(recorder)], PolicyGate(blocks, info.k, info.k_max)
    return None


class PolicyGate:
    """The engine's gate: the policy in force, or the engine's own k without a policy.

    A fault in any part of the hook detaches the gate, and the engine uses its own k from then on.
    """

    def __init__(self, blocks: Blocks, k: int, k_max: int) -> None:
        self._blocks, self._k, self._k_max = blocks, k, k_max
        self._sound = True

    def __call__(self, sequences: Sequence[Any], waiting: int) -> list[int]:
        """k of each sequence, called once per round; a block may begin with it."""
        batch = len(sequences)
        if self._sound:
            try:
                self._blocks.turn()
                return [self._of(sequence, batch, waiting) for sequence in sequences]
            except Exception as error:
                self._sound = False
                self._blocks.fail(f"reference engine, policy: {error!r}")
        return [self._k] * batch

    def _of(self, sequence: Any, batch: int, waiting: int) -> int:
        request = sequence.request
        k = self._blocks.k(
            request.label, sequence.context, request.params.max_new_tokens, batch, waiting
        )
        return self._k if k is None else min(k, self._k_max)


def boot_of(info: Any, settings: HookSettings) -> Boot:
    """The boot record of an engine, with its model cards."""
    target, draft = info.card["target"], info.card.get("draft", {})
    return new_boot(
        settings,
        engine="reference",
        engine_version=hook_version(),
        target=info.target,
        draft=info.draft or None,
        quantisation=info.dtype,
        method="draft_model" if info.method == "model" else info.method,
        k_max=info.k_max,
        parameters=target["parameters"],
        active_parameters=target["active_parameters"],
        bytes_per_weight=target["bytes_per_weight"],
        kv_bytes_per_token=target["kv_bytes_per_token"],
        layers=target["layers"],
        draft_parameters=draft.get("parameters"),
        draft_bytes_per_weight=draft.get("bytes_per_weight"),
        draft_kv_bytes_per_token=draft.get("kv_bytes_per_token"),
        largest_batch=info.slots,
        lookahead_slots=info.k_max,
        # The engine's account of its cache is in tokens, and so are these blocks.
        cache_blocks=info.cache_tokens,
        block_size=None if info.cache_tokens is None else 1,
        **(cuda_devices() if info.device.startswith("cuda") else {}),
    )
