"""Checks of settings, pairs, requests and gates; each refusal names its reason."""

from collections.abc import Sequence

from specscope.engine.api import MODES, SamplingParams
from specscope.engine.decode.batch import MAX_EOS
from specscope.engine.errors import BadGate, BadRequest, BadSetting, IncompatiblePair
from specscope.engine.model.config import ModelConfig
from specscope.engine.model.decoder import Decoder

COUNT_MAX = (1 << 31) - 1
"""Counts fit 32 bits wherever a request is written down."""
TEMPERATURES = (1e-6, 1e6)
"""Beyond these a logit over the temperature may not be a number any more."""


def check_engine(
    target: Decoder,
    k_max: int,
    slots: int,
    capacity: int,
    prefill_tokens: int,
    cache_tokens: int,
    synthetic: Sequence[float] | None,
) -> None:
    """Raises BadSetting if settings are out of range, or do not fit the target or each other."""
    if k_max < 0 or slots < 1 or capacity < 2:
        raise BadSetting("k_max must be at least 0, slots at least 1, capacity at least 2")
    if k_max > 255:
        raise BadSetting(f"k_max is at most 255, not {k_max}")
    context = target.config.max_context
    if capacity + k_max + 1 > context:
        raise BadSetting(
            f"capacity {capacity} and k_max {k_max} need {capacity + k_max + 1} positions, "
            f"the target has {context}"
        )
    if prefill_tokens < 1:
        raise BadSetting(f"prefill_tokens must be at least 1, not {prefill_tokens}")
    if cache_tokens < capacity + k_max + 1:
        raise BadSetting(
            f"cache_tokens {cache_tokens} cannot hold one sequence: capacity {capacity} and "
            f"k_max {k_max} need {capacity + k_max + 1}"
        )
    if synthetic is None:
        return
    if len(synthetic) < k_max or not all(0 <= c <= 1 for c in synthetic):
        raise BadSetting(f"synthetic acceptance needs {k_max} rates in 0..1")


def check_pair(target: ModelConfig, draft: ModelConfig) -> None:
    """Raises IncompatiblePair if the draft's token ids differ from the target's."""
    if target.vocab != draft.vocab:
        raise IncompatiblePair(f"target has {target.vocab} tokens, draft {draft.vocab}")


def check_head(target: ModelConfig, head: ModelConfig) -> None:
    """Raises IncompatiblePair if a head cannot read the target's hidden states."""
    check_pair(target, head)
    if target.hidden != head.hidden:
        raise IncompatiblePair(
            f"the target's hidden states have {target.hidden} numbers, the head reads {head.hidden}"
        )


def check_request(
    prompt: Sequence[int], params: SamplingParams, vocab: int, capacity: int, detokenizes: bool
) -> None:
    """Raises BadRequest if an engine with this vocabulary and capacity can never run it.

    detokenizes: whether the engine has a detokenizer, which stop strings need.
    """
    if not prompt:
        raise BadRequest("the prompt is empty", "prompt")
    if len(prompt) >= capacity:
        raise BadRequest(
            f"the prompt has {len(prompt)} tokens, at most {capacity - 1} fit", "prompt"
        )
    if min(prompt) < 0 or max(prompt) >= vocab:
        raise BadRequest(f"the prompt holds tokens outside 0..{vocab - 1}", "prompt")
    if not 1 <= params.max_new_tokens <= COUNT_MAX:
        reason = f"max_new_tokens must be in 1..{COUNT_MAX}, not {params.max_new_tokens}"
        raise BadRequest(reason, "max_new_tokens")
    low, high = TEMPERATURES
    if params.temperature != 0 and not low <= params.temperature <= high:
        reason = f"temperature must be 0 or in {low}..{high}, not {params.temperature}"
        raise BadRequest(reason, "temperature")
    if not 0 < params.top_p <= 1:
        raise BadRequest(f"top_p must be in (0, 1], not {params.top_p}", "top_p")
    if not 0 <= params.top_k <= COUNT_MAX:
        raise BadRequest(f"top_k must be in 0 (off)..{COUNT_MAX}, not {params.top_k}", "top_k")
    if params.mode not in MODES:
        raise BadRequest(f"mode must be one of {', '.join(MODES)}, not {params.mode!r}", "mode")
    if not -(1 << 63) <= params.seed < 1 << 63:
        raise BadRequest("seed must fit 64 bits", "seed")
    if len(params.eos) > MAX_EOS:
        raise BadRequest(f"at most {MAX_EOS} end-of-text tokens, not {len(params.eos)}", "eos")
    if params.stop and not detokenizes:
        raise BadRequest("stop strings need an engine that can detokenize", "stop")
    if "" in params.stop:
        raise BadRequest("a stop string is empty", "stop")


def check_gate(ks: Sequence[int], sequences: int, k_max: int) -> None:
    """Raises BadGate unless there is one draft length in 0..k_max for each sequence."""
    if len(ks) != sequences:
        raise BadGate(f"the gate gave {len(ks)} draft lengths for {sequences} sequences")
    if any(not 0 <= k <= k_max for k in ks):
        raise BadGate(f"the gate gave {list(ks)}, each must be in 0..{k_max}")
