"""vLLM: the Boot record, from its configuration and the sizes that a worker told."""

from __future__ import annotations

from typing import Any

from specscope_hook.boot import new_boot
from specscope_hook.records import Boot
from specscope_hook.settings import HookSettings


def vllm_boot(
    config: Any, kv_cache: Any, settings: HookSettings, version: str, card: dict[str, Any]
) -> Boot:
    """config: VllmConfig; kv_cache: KVCacheConfig; card: what WorkerProbe.card said."""
    model, parallel, spec = config.model_config, config.parallel_config, config.speculative_config
    text = getattr(model, "hf_text_config", None)
    experts = _number(text, "num_experts", "num_local_experts", "n_routed_experts")
    return new_boot(
        settings,
        engine="vllm",
        engine_version=version,
        target=str(model.model),
        draft=str(spec.model) if spec is not None and _has_draft(spec) else None,
        quantisation=model.quantization or str(model.dtype).removeprefix("torch."),
        method=str(spec.method) if spec is not None else "none",
        k_max=int(spec.num_speculative_tokens) if spec is not None else 0,
        tensor_parallel=parallel.tensor_parallel_size,
        pipeline_parallel=parallel.pipeline_parallel_size,
        data_parallel=parallel.data_parallel_size,
        expert_parallel=parallel.tensor_parallel_size * parallel.data_parallel_size
        if parallel.enable_expert_parallel
        else 1,
        rank=parallel.data_parallel_rank,
        role=_role(config.kv_transfer_config),
        kv_bytes_per_token=_kv_bytes(kv_cache),
        layers=_number(text, "num_hidden_layers"),
        experts=experts,
        active_parameters=None if experts else card.get("parameters"),
        **card,
        **_devices(),
    )


def _has_draft(spec: Any) -> bool:
    return spec.method not in ("ngram", "ngram_gpu", "suffix") and spec.model is not None


def _role(transfer: Any) -> str:
    kind = getattr(transfer, "kv_role", None)
    return {"kv_producer": "prefill", "kv_consumer": "decode"}.get(str(kind), "both")


def _kv_bytes(kv_cache: Any) -> int | None:
    """Of one token over all layers of this rank; unknown where groups differ in block size."""
    sizes = set()
    total = 0
    for group in kv_cache.kv_cache_groups:
        spec = group.kv_cache_spec
        sizes.add(spec.block_size)
        total += spec.page_size_bytes * len(group.layer_names)
    return total // sizes.pop() if len(sizes) == 1 else None


def _number(config: Any, *names: str) -> int | None:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _devices() -> dict[str, Any]:
    """Name and driver of the devices; nothing on a CPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    properties = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    return {
        "gpu_type": properties[0].name,
        "gpu_uuids": [str(each.uuid) for each in properties if hasattr(each, "uuid")],
    }
