"""Facts about models and devices for the boot record, read in the same way for every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specscope_hook.weights import weights_of


def sizes_on_disk(prefix: str, model: str) -> dict[str, Any]:
    """Parameters and bytes per weight of a model on disk; empty without its files."""
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


def number(config: Any, *names: str) -> int | None:
    """The first positive integer in a model's configuration under one of these names."""
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def cuda_devices() -> dict[str, Any]:
    """Name and ids of the visible devices; empty on a CPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    properties = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    return {
        "gpu_type": properties[0].name,
        "gpu_uuids": [str(each.uuid) for each in properties if hasattr(each, "uuid")],
    }
