"""SGLang: the boot record, from its effective arguments and the headers of the models' files."""

from __future__ import annotations

from typing import Any

from specscope_hook.boot import new_boot
from specscope_hook.facts import cuda_devices, number, sizes_on_disk
from specscope_hook.records import Boot
from specscope_hook.settings import HookSettings

_METHODS = {"standalone": "draft_model", "nextn": "mtp", "frozen_kv_mtp": "mtp"}


def sglang_boot(scheduler: Any, settings: HookSettings, version: str) -> Boot:
    """The boot record of a built scheduler, from SGLang's effective arguments."""
    from sglang.srt.runtime_context import get_model, get_parallel, get_spec

    model, parallel, spec = get_model(), get_parallel(), get_spec()
    name = scheduler.spec_algorithm.name.lower()
    draft = spec.speculative_draft_model_path if name not in ("none", "ngram") else None
    text = scheduler.model_config.hf_text_config
    experts = number(text, "num_experts", "num_local_experts", "n_routed_experts")
    card = sizes_on_disk("", str(model.model_path)) | (
        sizes_on_disk("draft_", str(draft)) if draft else {}
    )
    dtype = str(scheduler.model_config.dtype).removeprefix("torch.")
    return new_boot(
        settings,
        engine="sglang",
        engine_version=version,
        target=str(model.model_path),
        draft=str(draft) if draft else None,
        quantisation=model.quantization or dtype,
        method=_METHODS.get(name, name),
        k_max=_k_max(scheduler.draft_worker),
        k_schedule=_schedule(scheduler.draft_worker),
        tensor_parallel=parallel.tp_size,
        pipeline_parallel=parallel.pp_size,
        data_parallel=parallel.dp_size,
        expert_parallel=parallel.ep_size,
        rank=parallel.dp_rank if parallel.dp_rank is not None else parallel.attn_dp_rank,
        kv_bytes_per_token=_kv_bytes(scheduler, parallel.attn_tp_size),
        layers=number(text, "num_hidden_layers"),
        experts=experts,
        active_parameters=None if experts else card.get("parameters"),
        **card,
        **(cuda_devices() if scheduler.device == "cuda" else {}),
    )


def _k_max(worker: Any) -> int:
    """The longest chain of proposals; for a tree, its depth."""
    if worker is None:
        return 0
    width = int(worker.speculative_num_draft_tokens) - 1
    steps = int(worker.speculative_num_steps or width)
    adaptive = getattr(worker, "adaptive_controller", None)
    if adaptive is not None:
        return max(steps, *map(int, adaptive.candidate_steps))
    return min(steps, width) if branches(worker) else width


def _schedule(worker: Any) -> str | None:
    adaptive = getattr(worker, "adaptive_controller", None)
    if adaptive is None:
        return None
    return "adaptive, " + " ".join(str(k) for k in sorted(map(int, adaptive.candidate_steps)))


def branches(worker: Any) -> bool:
    """Whether proposals form a tree, of which only one path can be accepted."""
    return hasattr(worker.draft_worker, "draft") and int(worker.topk or 1) > 1


def _kv_bytes(scheduler: Any, ranks: int) -> int | None:
    """KV-cache bytes per token of the target, over all layers and tensor-parallel ranks."""
    try:
        pool = scheduler.token_to_kv_pool_allocator.get_kvcache()
        keys, values = pool.get_kv_size_bytes()  # one number where heads share a cache
        return int((keys + values) / (pool.size + pool.page_size) * ranks)
    except Exception:  # caches of several kinds: then it is unknown
        return None
