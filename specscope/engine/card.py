"""What a model weighs: the numbers from which a round's memory traffic follows."""

from specscope.engine.bundled import Pair
from specscope.engine.model import Decoder


def model_card(pair: Pair) -> dict[str, dict[str, float | int]]:
    """For `target` and, where there is one, `draft`.

    parameters and active_parameters (equal, as nothing is sparse), bytes_per_weight,
    kv_bytes_per_token over all layers, layers, experts (0).
    """
    card = {"target": card_of(pair.target)}
    if pair.draft is not None:
        card["draft"] = card_of(pair.draft)
    return card


def card_of(model: Decoder) -> dict[str, float | int]:
    """One model's entry."""
    config = model.config
    size = model.dtype.itemsize
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {
        "parameters": parameters,
        "active_parameters": parameters,
        "bytes_per_weight": size,
        "kv_bytes_per_token": 2 * config.layers * config.kv_heads * config.head_dim * size,
        "layers": config.layers,
        "experts": 0,
    }
