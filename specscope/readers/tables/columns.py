"""Column names of benchmark tables and their aliases. A name outside these lists is left out.

Names are compared as `csv_file.name_of` writes them: lower case, units behind an underscore.
"""

from __future__ import annotations

ARM = (
    "arm",
    "config",
    "configuration",
    "run",
    "mode",
    "variant",
    "method",
    "setup",
    "experiment",
    "spec",
    "speculative",
    "speculation",
    "policy",
    "name",
)

K = (
    "k",
    "num_steps",
    "steps",
    "spec_steps",
    "num_speculative_tokens",
    "speculative_tokens",
    "gamma",
    "num_spec_tokens",
    "draft_len",
    "draft_length",
    "draft_max",
    "n_draft",
    "draft_n_max",
    "n_max",
    "depth",
    "speculative_num_steps",
    "draft_tokens",
    "num_draft_tokens",
)
"""In this order: SGLang's `num_draft_tokens` is steps + 1, so steps win where both stand."""

CLASS = {
    "context": (
        "context",
        "ctx",
        "ctx_tokens",
        "context_tokens",
        "context_length",
        "context_len",
        "input_len",
        "input_length",
        "input_tokens",
        "prompt_tokens",
        "prompt_len",
        "isl",
        "seq_len",
        "kv_len",
    ),
    "concurrency": (
        "concurrency",
        "max_concurrency",
        "clients",
        "users",
        "num_users",
        "parallel",
        "num_concurrent",
        "request_concurrency",
        "conc",
    ),
    "batch": ("batch", "batch_size", "bs", "num_seqs", "max_num_seqs"),
    "tp": ("tp", "tp_size", "tensor_parallel", "tensor_parallel_size", "num_gpus", "gpus"),
    "output_tokens": ("output_len", "output_length", "osl", "max_tokens", "max_new_tokens"),
    "label": (
        "label",
        "class",
        "task",
        "dataset",
        "workload",
        "traffic",
        "route",
        "tenant",
        "prompt_type",
        "scenario",
    ),
    "engine": ("engine", "backend"),
    "version": ("version", "engine_version", "build"),
}

SETTINGS = (
    "topk",
    "top_k",
    "eagle_topk",
    "speculative_eagle_topk",
    "temperature",
    "quantization",
    "dtype",
    "model",
    "draft_model",
    "drafter",
)

DRAFTER = ("drafter", "draft_model", "draft", "draft_model_path", "speculative_model", "spec_model")
"""What drafted; blank in the rows of a baseline."""

HIGHER = {
    "throughput_tok_s": (
        "output_tok_s",
        "output_tok_per_s",
        "throughput_tok_s",
        "throughput_tok_per_s",
        "tok_s",
        "tok_per_s",
        "toks",
        "tokens_s",
        "tokens_per_s",
        "tokens_per_second",
        "output_throughput",
        "output_tokens_per_second",
        "output_throughput_tok_s",
        "output_throughput_tok_per_s",
        "throughput",
        "tps",
        "gen_tok_s",
        "decode_tok_s",
        "tg_tok_s",
        "generation_tok_s",
        "output_tps",
        "tg",
        "t_s",
        "t_per_s",
    ),
    "request_s": (
        "req_per_s",
        "req_s",
        "request_throughput",
        "requests_per_second",
        "rps",
        "qps",
        "request_throughput_req_s",
        "request_throughput_req_per_s",
    ),
}

LOWER = {
    "tpot_ms": (
        "tpot_ms",
        "mean_tpot_ms",
        "tpot",
        "mean_tpot",
        "ms_per_token",
        "ms_per_tok",
        "time_per_output_token_ms",
        "avg_tpot_ms",
        "median_tpot_ms",
    ),
    "itl_ms": ("itl_ms", "mean_itl_ms", "inter_token_latency_ms"),
    "latency_ms": (
        "latency_ms",
        "avg_latency_ms",
        "mean_latency_ms",
        "e2e_ms",
        "mean_e2e_ms",
        "e2e_latency_ms",
        "mean_e2el_ms",
        "mean_e2e_latency_ms",
        "request_latency_ms",
    ),
    "ttft_ms": (
        "ttft_ms",
        "mean_ttft_ms",
        "avg_ttft_ms",
        "first_token_ms",
        "time_to_first_token_ms",
    ),
    "decode_ms": ("decode_ms", "decode_time_ms"),
}

SECONDS = {
    "latency_ms": ("latency_s", "avg_latency_s", "e2e_s", "latency"),
    "ttft_ms": ("ttft_s", "first_token_s"),
    "decode_ms": ("decode_s", "decode_time_s"),
    "tpot_ms": ("tpot_s",),
}

PARTS = {
    "draft_ms": (
        "draft_ms",
        "drafter_ms",
        "draft_time_ms",
        "draft_ms_per_round",
        "draft_per_round_ms",
        "t_draft_ms",
        "proposal_ms",
    ),
    "verify_ms": (
        "verify_ms",
        "backbone_ms",
        "verify_time_ms",
        "verification_ms",
        "verify_ms_per_round",
        "verify_per_round_ms",
        "target_verify_ms",
        "t_verify_ms",
    ),
    "target_step_ms": (
        "target_ms",
        "step_ms",
        "target_step_ms",
        "target_only_ms",
        "target_only_time",
        "target_ms_per_token",
        "baseline_step_ms",
        "decode_step_ms",
        "t_target_ms",
    ),
}
"""Milliseconds of a round's parts, and of a target-only step at the same load."""

OUTCOME = {
    "output_tokens": (
        "output_tokens",
        "generated_tokens",
        "tokens_generated",
        "completion_tokens",
        "mean_output_tokens",
        "total_output_tokens",
        "n_predicted",
    ),
    "accepted": ("accepted", "accepted_tokens", "num_accepted", "num_accepted_tokens", "n_accept"),
    "proposed": (
        "drafted",
        "proposed",
        "drafted_tokens",
        "num_drafted",
        "n_drafted",
        "proposed_tokens",
    ),
    "drafts": ("cycles", "rounds", "drafts", "num_drafts", "verify_calls", "verify_ct"),
    "mean_length": (
        "tok_per_cycle",
        "accept_len",
        "accept_length",
        "acceptance_length",
        "mean_acceptance_length",
        "mean_accept_length",
        "tokens_per_round",
        "tau",
        "mal",
        "mean_len",
        "al",
    ),
    "acceptance_rate": (
        "acceptance",
        "acceptance_rate",
        "accept_rate",
        "acceptance_pct",
        "draft_acceptance_rate",
    ),
    "drafted_delta": ("num_draft_tokens_delta", "draft_tokens_delta"),
}
