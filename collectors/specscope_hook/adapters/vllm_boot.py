"""vLLM: the boot record, from its configuration and the headers of the models' files."""

from __future__ import annotations

import json
import os
from typing import Any

from specscope_hook.boot import new_boot
from specscope_hook.facts import cuda_devices, number, sizes_on_disk
from specscope_hook.records import Boot
from specscope_hook.settings import HookSettings


def vllm_boot(config: Any, kv_cache: Any, settings: HookSettings, version: str) -> Boot:
    """config: VllmConfig; kv_cache: KVCacheConfig."""
    model, parallel, spec = config.model_config, config.parallel_config, config.speculative_config
    text = getattr(model, "hf_text_config", None)
    experts = number(text, "num_experts", "num_local_experts", "n_routed_experts")
    draft = str(spec.model) if spec is not None and _has_draft(spec) else None
    card = _card("", model, str(model.model))
    if draft:
        card |= _card("draft_", getattr(spec, "draft_model_config", None), draft)
    kv_bytes = _kv_bytes(kv_cache, parallel.tensor_parallel_size)
    return new_boot(
        settings,
        engine="vllm",
        engine_version=version,
        target=str(model.model),
        draft=draft,
        quantisation=model.quantization or str(model.dtype).removeprefix("torch."),
        method=str(spec.method) if spec is not None else "none",
        k_max=int(spec.num_speculative_tokens) if spec is not None else 0,
        k_schedule=_schedule(spec),
        tensor_parallel=parallel.tensor_parallel_size,
        pipeline_parallel=parallel.pipeline_parallel_size,
        data_parallel=parallel.data_parallel_size,
        expert_parallel=parallel.tensor_parallel_size * parallel.data_parallel_size
        if parallel.enable_expert_parallel
        else 1,
        # Ranks of a dense model are engines of their own; only this tells them apart.
        rank=getattr(parallel, "data_parallel_index", parallel.data_parallel_rank),
        role=_role(config.kv_transfer_config),
        kv_bytes_per_token=kv_bytes.get(False),
        draft_kv_bytes_per_token=kv_bytes.get(True),
        cache_blocks=number(kv_cache, "num_blocks"),
        block_size=number(getattr(config, "cache_config", None), "block_size"),
        largest_batch=number(getattr(config, "scheduler_config", None), "max_num_seqs"),
        lookahead_slots=number(config, "num_lookahead_tokens"),
        configuration=configuration(config, version),
        layers=number(text, "num_hidden_layers"),
        experts=experts,
        active_parameters=None if experts else card.get("parameters"),
        **card,
        **cuda_devices(),
    )


def configuration(config: Any, version: str) -> dict[str, Any]:
    """Everything that defines this vLLM's speculation, as plain values.

    config: VllmConfig. It includes every set and serialisable field of the speculative part, so
    that controllers of newer versions are included.
    """
    spec, parallel = config.speculative_config, config.parallel_config
    scheduler = getattr(config, "scheduler_config", None)
    graphs = getattr(getattr(config, "compilation_config", None), "cudagraph_mode", None)
    profile = os.environ.get(_PROFILE) if _adapts(spec) else None
    return {
        "engine": f"vllm {version}",
        "speculative": {} if spec is None else _plain_fields(spec),
        **({} if profile is None else {"adaptive_verification_context": profile}),
        "target_dtype": str(config.model_config.dtype).removeprefix("torch."),
        "quantization": config.model_config.quantization,
        "tensor_parallel": parallel.tensor_parallel_size,
        "pipeline_parallel": parallel.pipeline_parallel_size,
        "data_parallel": parallel.data_parallel_size,
        "graphs": getattr(graphs, "name", None),
        "async_scheduling": getattr(scheduler, "async_scheduling", None),
        "v2_model_runner": getattr(config, "use_v2_model_runner", None),
    }


_PROFILE = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"
"""Adaptive verification decides by costs that it measured at this context; a variable of vLLM's."""


def _adapts(spec: Any) -> bool:
    return bool(getattr(spec, "enable_adaptive_verification", False))


def _plain_fields(spec: Any) -> dict[str, Any]:
    fields = {name: value for name, value in vars(spec).items() if not name.startswith("_")}
    return {name: value for name, value in fields.items() if value is not None and _plain(value)}


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return isinstance(value, str | int | float | bool)


def _card(prefix: str, model: Any, path: str) -> dict[str, Any]:
    """Sizes of a model as loaded; its files may have another type."""
    card = sizes_on_disk(prefix, path)
    if card:
        card[f"{prefix}bytes_per_weight"] = loaded_bytes_per_weight(
            model, card[f"{prefix}bytes_per_weight"]
        )
    return card


def loaded_bytes_per_weight(model: Any, on_disk: float) -> float | None:
    """Bytes per weight on the device; None if unknown.

    model: ModelConfig. on_disk: mean over the model's files, which is valid for a quantised
    checkpoint. Weights that vLLM quantises on loading have the size of their type. Layers without
    quantisation (embeddings, norms) are not distinguished.
    """
    if getattr(model, "quantization", None) is None:
        size = getattr(getattr(model, "dtype", None), "itemsize", None)
        return None if size is None else float(size)
    if getattr(getattr(model, "hf_config", None), "quantization_config", None) is not None:
        return on_disk
    name = str(model.quantization)
    return next((size for start, size in _ONLINE if name.startswith(start)), None)


_ONLINE = (
    *((name, 0.5) for name in ("nvfp4", "mxfp4", "bitsandbytes")),
    *((name, 1.0) for name in ("fp8", "mxfp8", "int8", "experts_int8")),
)
"""Ways of quantising at load time, by how their names begin, and the bytes of a weight."""


def served_name(scheduler: Any) -> str:
    """The first served model name; empty if unknown."""
    model = getattr(scheduler.vllm_config, "model_config", None)
    name = getattr(model, "served_model_name", None) or ""
    return str(name if isinstance(name, str) else name[0])


def _schedule(spec: Any) -> str | None:
    ranges = getattr(spec, "num_speculative_tokens_per_batch_size", None)
    return json.dumps(ranges) if ranges else None


def _has_draft(spec: Any) -> bool:
    return spec.method not in ("ngram", "ngram_gpu", "suffix") and spec.model is not None


def _role(transfer: Any) -> str:
    kind = getattr(transfer, "kv_role", None)
    return {"kv_producer": "prefill", "kv_consumer": "decode"}.get(str(kind), "both")


def _kv_bytes(kv_cache: Any, ranks: int) -> dict[bool, int]:
    """KV-cache bytes per token over all layers and tensor-parallel ranks: target (False) and draft
    model (True). Empty if groups of layers differ in block size."""
    total: dict[bool, int] = {}
    sizes = {group.kv_cache_spec.block_size for group in kv_cache.kv_cache_groups}
    if len(sizes) != 1:
        return {}
    for group in kv_cache.kv_cache_groups:
        for layer in group.layer_names:
            is_draft = layer.startswith("draft")
            spec = getattr(group.kv_cache_spec, "kv_cache_specs", {}).get(
                layer, group.kv_cache_spec
            )
            total[is_draft] = total.get(is_draft, 0) + spec.page_size_bytes * ranks
    size = sizes.pop()
    return {is_draft: amount // size for is_draft, amount in total.items()}
