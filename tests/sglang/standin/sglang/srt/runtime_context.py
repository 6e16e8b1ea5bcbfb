"""The settled arguments of this process, as SGLang's own modules read them."""

from types import SimpleNamespace

bags = {
    "parallel": SimpleNamespace(
        tp_size=1, pp_size=1, dp_size=1, ep_size=1, dp_rank=None,
        attn_tp_rank=0, attn_cp_rank=0, attn_dp_rank=0, attn_tp_size=1,
    ),
    "model": SimpleNamespace(model_path="org/target", quantization=None),
    "spec": SimpleNamespace(speculative_draft_model_path="org/draft"),
    "disagg": SimpleNamespace(disaggregation_mode="null"),
}  # fmt: skip


def get_parallel():
    return bags["parallel"]


def get_model():
    return bags["model"]


def get_spec():
    return bags["spec"]


def get_disagg():
    return bags["disagg"]
