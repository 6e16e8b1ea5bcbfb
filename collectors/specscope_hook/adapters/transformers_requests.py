"""transformers: the request record of a call of `generate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specscope_hook.admission import Admission
from specscope_hook.recorder import UNKNOWN_U32, Recorder

_NOT_SHAPING = frozenset((
    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit",
    "assistant_lookbehind", "target_lookbehind", "speculation_type", "use_mtp", "is_assistant",
    "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff",
    "use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size",
    "compile_config", "disable_compile", "continuous_batching_config", "low_memory",
    "output_attentions", "output_hidden_states", "output_scores", "output_logits",
    "return_dict_in_generate", "pad_token_id", "_from_model_config", "transformers_version",
))  # fmt: skip
"""Fields of a GenerationConfig that a greedy output does not depend on."""
_BY_CHANCE = ("max_time", "assistant_ensemble_weight", "watermarking_config")
"""Fields of it that let more than the prompt and the target decide."""
_FROM_CALLER = (
    "logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn", "custom_generate",
    "negative_prompt_ids", "position_ids",
)  # fmt: skip
"""Arguments of `generate` that shape an output and have no name to compare."""
_TEXT = {"attention_mask", "position_ids", "cache", "past_key_values", "use_cache",
         "logits_to_keep", "cache_position"}  # fmt: skip
"""Inputs of a model that generates from text alone; others make the prompt more than tokens."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a call. [tokens]

    tokens: the whole prompt. past: tokens in the given cache but not in the input ids. cached:
    tokens in the given cache. limit: maximum output; None if there is none.
    """

    tokens: int
    past: int
    cached: int
    limit: int | None
    eos: frozenset[int]


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of `generate` before its first round.

    by: its arguments, by name. inputs: the model's inputs, by name, as `generate` prepared them.
    """

    model: Any
    config: Any
    input_ids: Any
    by: Mapping[str, Any]
    inputs: Mapping[str, Any]

    def admit(
        self, recorder: Recorder, prompt: Prompt, *, id_: str, label: str, admitted_at: int
    ) -> Admission | None:
        """Write its admission."""
        adapter = adapter_of(self.model)
        config, sampled = self.config, bool(self.config.do_sample)
        return recorder.admitted(
            request=recorder.request_hash(id_),
            class_=recorder.class_id(label),
            admitted_at=admitted_at,
            prompt_tokens=prompt.tokens,
            cached_tokens=prompt.cached,
            requested_output=UNKNOWN_U32 if prompt.limit is None else prompt.limit,
            temperature=float(config.temperature or 0.0) if sampled else 0.0,
            top_p=float(config.top_p or 1.0) if sampled else 1.0,
            adapter=recorder.adapter_id(adapter),
            guided=self.by.get("prefix_allowed_tokens_fn") is not None,
            content=0 if prompt.cached else self._content(recorder, adapter),
        )

    def _content(self, recorder: Recorder, adapter: str) -> int:
        """Content hash of a greedy call whose output depends only on token ids and configuration; 0
        for others."""
        values = self.config.to_dict()
        if (
            self.config.do_sample
            or self._more_than_text()
            or any(values.get(name) is not None for name in _BY_CHANCE)
            or any(_given(self.by.get(name)) for name in _FROM_CALLER)
        ):
            return 0
        shape = sorted((name, repr(v)) for name, v in values.items() if name not in _NOT_SHAPING)
        return recorder.content_hash(self.input_ids[0].tolist(), adapter, shape)

    def _more_than_text(self) -> bool:
        mask = self.inputs.get("attention_mask")
        return (
            bool(self.model.config.is_encoder_decoder)
            or not self.input_ids.shape[1]
            or any(_given(self.inputs[name]) for name in self.inputs if name not in _TEXT)
            or (mask is not None and not bool((mask == 1).all()))
        )


def prompt_of(asked: Asked) -> Prompt:
    """The prompt of a call of one sequence."""
    config, inputs = asked.config, asked.inputs
    given = int(asked.input_ids.shape[1])
    limit = max(0, config.max_length - given) if config.max_length else None
    cache = next((inputs[n] for n in ("cache", "past_key_values") if inputs.get(n) is not None), 0)
    cached = int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0
    past, embedded = 0, inputs.get("inputs_embeds")
    if embedded is not None and not given:
        past = int(embedded.shape[1])
    elif cached and not asked.model.config.is_encoder_decoder:
        mask = inputs.get("attention_mask")
        whole = getattr(config, "_mask_length", given) if mask is None else int(mask.shape[1])
        past = max(0, whole - given)
    return Prompt(given + past, past, cached, limit, _eos(config))


def _given(value: Any) -> bool:
    """Whether an argument is given; an empty list of processors counts as missing."""
    return value is not None and not (isinstance(value, list) and not value)


def adapter_of(model: Any) -> str:
    """The active LoRA adapters that transformers itself added to the model."""
    if not getattr(model, "_hf_peft_config_loaded", False):
        return ""
    return "+".join(model.active_adapters())


def _eos(config: Any) -> frozenset[int]:
    ids = config.eos_token_id
    return frozenset(() if ids is None else ids if isinstance(ids, list) else [ids])
