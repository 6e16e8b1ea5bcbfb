"""The seams: what each adapter wraps and reads of its engine, by source file and class.

A class maps to its methods, each with the parameters that a wrapper reads, and to its fields. The
adapters' own tables are used where they have one, so that a seam is written once.
"""

from __future__ import annotations

from dataclasses import dataclass

from specscope_hook.adapters import sglang, sglang_worker, vllm, vllm_adaptive
from specscope_hook.adapters.transformers_wraps import METHODS as TRANSFORMERS
from specscope_hook.adapters.vllm_requests import _SHAPES

Methods = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Seam:
    """Of one class: its methods with the parameters that are read, and its fields."""

    file: str
    owner: str
    methods: Methods
    fields: tuple[str, ...] = ()


def _reads(file: str, owner: str, *fields: str) -> Seam:
    return Seam(file, owner, {}, fields)


_V1_RUNNER: Methods = {
    "execute_model": (),
    "sample_tokens": (),
    "_model_forward": (),
    "propose_draft_token_ids": (),
}
_V2_RUNNER: Methods = {
    "execute_model": ("scheduler_output", "dummy_run"),
    "sample_tokens": (),
}

VLLM = (
    Seam(
        "vllm/v1/core/sched/scheduler.py",
        "Scheduler",
        {**vllm._SCHEDULER, "get_request_counts": ()},
        ("running", "finished_req_ids", "vllm_config", "kv_cache_config"),
    ),
    Seam("vllm/v1/worker/worker_base.py", "WorkerWrapperBase", dict(vllm._WORKER), ("worker",)),
    Seam("vllm/v1/engine/core.py", "EngineCore", {"shutdown": ()}, ("scheduler",)),
    Seam("vllm/v1/worker/gpu_model_runner.py", "GPUModelRunner", _V1_RUNNER, ("device",)),
    Seam(
        "vllm/v1/worker/gpu/model_runner.py",
        "GPUModelRunner",
        _V2_RUNNER,
        ("device", "speculator", "adaptive_verification"),
    ),
    Seam(
        "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py",
        "AdaptiveVerificationManager",
        vllm_adaptive.METHODS,
        ("num_bonus_tokens",),
    ),
    _reads(
        "vllm/v1/core/sched/output.py",
        "SchedulerOutput",
        *("num_scheduled_tokens", "total_num_scheduled_tokens", "scheduled_spec_decode_tokens"),
        *("num_invalid_spec_tokens", "preempted_req_ids", "scheduled_new_reqs"),
        *("scheduled_cached_reqs", "num_spec_tokens_to_schedule"),
    ),
    _reads("vllm/v1/core/sched/output.py", "NewRequestData", "req_id"),
    _reads("vllm/v1/core/sched/output.py", "CachedRequestData", "resumed_req_ids"),
    _reads(
        "vllm/v1/outputs.py",
        "ModelRunnerOutput",
        *("req_ids", "req_id_to_index", "sampled_token_ids"),
    ),
    _reads("vllm/v1/outputs.py", "DraftTokenIds", "req_ids", "draft_token_ids"),
    _reads(
        "vllm/v1/request.py",
        "Request",
        *("request_id", "sampling_params", "lora_request", "structured_output_request"),
        *("session_id", "num_prompt_tokens", "max_tokens", "arrival_time", "num_preemptions"),
        *("output_token_ids", "all_token_ids", "num_tokens", "prompt_token_ids", "mm_features"),
    ),
    _reads(
        "vllm/v1/engine/__init__.py",
        "EngineCoreOutput",
        *("request_id", "new_token_ids", "finish_reason", "stop_reason", "prefill_stats"),
    ),
    _reads("vllm/v1/engine/__init__.py", "EngineCoreOutputs", "outputs"),
    _reads(
        "vllm/v1/engine/__init__.py",
        "FinishReason",
        *("STOP", "LENGTH", "ABORT", "ERROR", "REPETITION"),
    ),
    _reads("vllm/v1/metrics/stats.py", "PrefillStats", "num_cached_tokens"),
    _reads(
        "vllm/sampling_params.py",
        "SamplingParams",
        *(*_SHAPES, "temperature", "top_p", "extra_args"),
    ),
    _reads("vllm/lora/request.py", "LoRARequest", "lora_name"),
    _reads(
        "vllm/config/speculative.py",
        "SpeculativeConfig",
        *("method", "model", "num_speculative_tokens", "parallel_drafting", "draft_model_config"),
        "num_speculative_tokens_per_batch_size",
    ),
    _reads(
        "vllm/config/parallel.py",
        "ParallelConfig",
        *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
        *("data_parallel_rank", "data_parallel_index", "enable_expert_parallel"),
    ),
    _reads("vllm/config/compilation.py", "CompilationConfig", "cudagraph_mode"),
    _reads("vllm/config/compilation.py", "CUDAGraphMode", "has_full_cudagraphs"),
    _reads(
        "vllm/config/vllm.py",
        "VllmConfig",
        *("model_config", "parallel_config", "speculative_config", "compilation_config"),
        *("kv_transfer_config", "use_v2_model_runner"),
    ),
    _reads(
        "vllm/config/model.py",
        "ModelConfig",
        *("model", "dtype", "quantization", "hf_text_config", "hf_config", "served_model_name"),
    ),
)

SGLANG = (
    Seam("sglang/srt/managers/scheduler.py", "Scheduler", dict(sglang.METHODS)),
    Seam(
        "sglang/srt/managers/tp_worker.py",
        "TpModelWorker",
        {"forward_batch_generation": sglang_worker._FORWARD},
    ),
    Seam(
        "sglang/srt/speculative/eagle_worker_v2.py",
        "EAGLEWorkerV2",
        {"forward_batch_generation": sglang_worker._FORWARD, **sglang_worker._VERIFY},
    ),
    Seam(
        "sglang/srt/speculative/eagle_worker_v2.py", "EagleDraftWorker", dict(sglang_worker._DRAFT)
    ),
    Seam(
        "sglang/srt/speculative/ngram_worker.py",
        "NGRAMWorker",
        {"forward_batch_generation": sglang_worker._FORWARD, **sglang_worker._LOOKUP},
    ),
    _reads(
        "sglang/srt/managers/schedule_batch.py",
        "Req",
        *("rid", "sampling_params", "origin_input_ids", "output_ids", "finished_reason"),
        *("is_retracted", "cached_tokens"),
    ),
    _reads("sglang/srt/managers/schedule_batch.py", "ScheduleBatch", "reqs", "forward_mode"),
    _reads(
        "sglang/srt/observability/forward_pass_metrics.py",
        "ForwardPassMetrics",
        *("version", "worker_id", "counter_id", "wall_time"),
        *("scheduled_requests", "queued_requests"),
    ),
    _reads(
        "sglang/srt/observability/forward_pass_metrics.py",
        "ScheduledRequestMetrics",
        *("num_prefill_requests", "sum_prefill_tokens"),
        *("num_decode_requests", "sum_decode_kv_tokens"),
    ),
    _reads(
        "sglang/srt/observability/forward_pass_metrics.py",
        "QueuedRequestMetrics",
        *("num_prefill_requests", "num_decode_requests"),
    ),
)

_GENERATION = ("generate", "_get_candidate_generator", "_prefill", "prepare_inputs_for_generation")
_CANDIDATES: Methods = {
    "get_candidates": ("input_ids",),
    "update_candidate_strategy": ("num_matches",),
}
TRANSFORMERS_SEAMS = (
    Seam(
        "transformers/generation/utils.py",
        "GenerationMixin",
        {name: TRANSFORMERS[name] for name in _GENERATION},
    ),
    Seam("transformers/modeling_utils.py", "PreTrainedModel", {"get_compiled_call": ()}),
    *(
        Seam("transformers/generation/candidate_generator.py", owner, dict(_CANDIDATES))
        for owner in ("AssistedCandidateGenerator", "CandidateGenerator")
    ),
    _reads(
        "transformers/generation/configuration_utils.py",
        "GenerationConfig",
        *("prompt_lookup_num_tokens", "guidance_scale", "is_assistant", "num_beams"),
    ),
)

ENGINES = {"vllm": VLLM, "sglang": SGLANG, "transformers": TRANSFORMERS_SEAMS}
