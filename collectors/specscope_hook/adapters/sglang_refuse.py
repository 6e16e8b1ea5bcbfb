"""SGLang: decide which schedulers are recorded, with a reason for the others."""

from __future__ import annotations

from typing import Any


def records_here() -> bool:
    """Whether this is the first of the ranks that run one batch together."""
    from sglang.srt.runtime_context import get_parallel

    ranks = get_parallel()
    return bool(ranks.attn_tp_rank == 0 and ranks.attn_cp_rank == 0)


def refusal(scheduler: Any) -> str:
    """The reason for not recording a scheduler; empty if it is recorded."""
    from sglang.srt.runtime_context import get_disagg, get_parallel

    if not scheduler.is_generation:
        return "this model does not generate"
    if get_parallel().pp_size > 1:
        return "with pipeline parallelism a round's parts run in several processes"
    if str(get_disagg().disaggregation_mode) not in ("null", "None"):
        return "disaggregated prefill and decode are not known to this hook"
    if scheduler.dllm_config is not None or scheduler.enable_pdmux:
        return "diffusion models and multiplexed prefill have no rounds as we know them"
    algorithm = scheduler.spec_algorithm
    if not (algorithm.is_none() or algorithm.is_eagle() or algorithm.is_standalone()) and (
        not algorithm.is_ngram()
    ):
        return f"speculative algorithm {algorithm.name} is not known to this hook"
    return ""
