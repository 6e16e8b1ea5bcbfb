"""transformers: the Boot record, from the models themselves."""

from __future__ import annotations

from typing import Any

from specscope_hook.boot import new_boot
from specscope_hook.facts import cuda_devices, number
from specscope_hook.records import Boot
from specscope_hook.settings import HookSettings


def transformers_boot(
    model: Any, settings: HookSettings, *, assistant: Any = None, **known: Any
) -> Boot:
    """The Boot record of a model that generates here.

    assistant: the model that drafts for it, if one does; known: more fields of records.Boot.
    """
    import transformers

    text = model.config.get_text_config()
    experts = number(text, "num_experts", "num_local_experts", "n_routed_experts")
    quantised = getattr(model.config, "quantization_config", None)
    values = {
        "engine": "transformers",
        "engine_version": transformers.__version__,
        "target": _name(model),
        "quantisation": _quantisation(quantised) or str(model.dtype).removeprefix("torch."),
        "layers": number(text, "num_hidden_layers"),
        "experts": experts,
        **_weights("", model),
        **(cuda_devices() if model.device.type == "cuda" else {}),
    }
    if not experts:
        values["active_parameters"] = values["parameters"]
    if assistant is not None:
        values |= {"draft": _name(assistant), "method": "draft_model"}
        values |= _weights("draft_", assistant)
    return new_boot(settings, **values | known)


def _name(model: Any) -> str:
    return str(model.config.name_or_path or type(model).__name__)


def _quantisation(config: Any) -> str | None:
    """Its method's name; a configuration is an object or, as read from a file, a dictionary."""
    found = config.get("quant_method") if isinstance(config, dict) else None
    found = found or getattr(config, "quant_method", None)
    return None if found is None else str(getattr(found, "value", found))


def _weights(prefix: str, model: Any) -> dict[str, Any]:
    weights = list(model.parameters())
    count = sum(weight.numel() for weight in weights)
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    return {
        f"{prefix}parameters": count,
        f"{prefix}bytes_per_weight": size / count if count else None,
    }
