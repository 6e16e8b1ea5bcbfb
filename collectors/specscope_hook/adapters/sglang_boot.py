"""SGLang: the Boot record, from its settled arguments and the headers of the models' files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specscope_hook.boot import new_boot
from specscope_hook.records import Boot
from specscope_hook.settings import HookSettings
from specscope_hook.weights import weights_of

_METHODS = {"standalone": "draft_model", "nextn": "mtp", "frozen_kv_mtp": "mtp"}


def sglang_boot(scheduler: Any, settings: HookSettings, version: str) -> Boot:
    """scheduler: one that is built. Arguments are read as SGLang settled them, not as given."""
    from sglang.srt.runtime_context import get_model, get_parallel, get_spec

    model, parallel, spec = get_model(), get_parallel(), get_spec()
    name = scheduler.spec_algorithm.name.lower()
    draft = spec.speculative_draft_model_path if name not in ("none", "ngram") else None
    text = scheduler.model_config.hf_text_config
    experts = _number(text, "num_experts", "num_local_experts", "n_routed_experts")
    card = _card("", str(model.model_path)) | (_card("draft_", str(draft)) if draft else {})
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
        tensor_parallel=parallel.tp_size,
        pipeline_parallel=parallel.pp_size,
        data_parallel=parallel.dp_size,
        expert_parallel=parallel.ep_size,
        rank=parallel.dp_rank if parallel.dp_rank is not None else parallel.attn_dp_rank,
        kv_bytes_per_token=_kv_bytes(scheduler, parallel.attn_tp_size),
        layers=_number(text, "num_hidden_layers"),
        experts=experts,
        active_parameters=None if experts else card.get("parameters"),
        **card,
        **_devices(scheduler.device),
    )


def _k_max(worker: Any) -> int:
    """The longest chain of proposals: with several candidates a step, its depth."""
    if worker is None:
        return 0
    width = int(worker.speculative_num_draft_tokens) - 1
    steps = int(worker.speculative_num_steps or width)
    adaptive = getattr(worker, "adaptive_controller", None)
    if adaptive is not None:
        return max(steps, *map(int, adaptive.candidate_steps))
    return min(steps, width) if branches(worker) else width


def branches(worker: Any) -> bool:
    """Whether proposals form a tree, so that not all of them can be accepted."""
    return hasattr(worker.draft_worker, "draft") and int(worker.topk or 1) > 1


def _kv_bytes(scheduler: Any, ranks: int) -> int | None:
    """Of one token of the target over all layers and tensor-parallel ranks."""
    try:
        pool = scheduler.token_to_kv_pool_allocator.get_kvcache()
        keys, values = pool.get_kv_size_bytes()  # one number where heads share a cache
        return int((keys + values) / (pool.size + pool.page_size) * ranks)
    except Exception:  # caches of several kinds: then it is unknown
        return None


def _card(prefix: str, model: str) -> dict[str, Any]:
    """Parameters and bytes a weight of a model on disk; nothing where its files are not."""
    directory = Path(model)
    if not directory.is_dir():
        try:
            from huggingface_hub import snapshot_download

            directory = Path(snapshot_download(model, local_files_only=True))
        except Exception:  # whatever it raises: the sizes are then unknown
            return {}
    found = weights_of(directory)
    if found is None:
        return {}
    return {
        f"{prefix}parameters": found.count,
        f"{prefix}bytes_per_weight": found.size / found.count,
    }


def _number(config: Any, *names: str) -> int | None:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _devices(device: str) -> dict[str, Any]:
    """Name and id of the devices that this process sees; nothing on a CPU."""
    if device != "cuda":
        return {}
    import torch

    properties = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    return {
        "gpu_type": properties[0].name,
        "gpu_uuids": [str(each.uuid) for each in properties if hasattr(each, "uuid")],
    }
