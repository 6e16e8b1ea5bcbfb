"""The role of a column from its header: arm, draft length, class, measure or position.

Names are compared in the form of `csv_file.name_of`: lower case, units after an underscore. Known
names are tried first, then the words of a name; other columns are ignored.
"""

from __future__ import annotations

import re

from specscope.readers.tables.names import is_drafter, words

ARM = words(
    "arm config configuration run mode variant method setup experiment spec speculative "
    "speculation policy name"
)
K = words(
    "k num_steps steps spec_steps num_speculative_tokens speculative_tokens gamma "
    "num_spec_tokens draft_len draft_length draft_max n_draft draft_n_max n_max depth "
    "speculative_num_steps draft_tokens num_draft_tokens"
)
"""In this order: SGLang's `num_draft_tokens` is steps + 1, so steps win where both stand."""

CLASS = {
    "context": "context ctx ctx_tokens context_tokens context_length context_len input_len "
    "input_length "
    "input_tokens prompt_tokens prompt_len isl seq_len kv_len n_kv",
    "concurrency": "concurrency max_concurrency clients users num_users parallel num_concurrent "
    "request_concurrency conc streams c",
    "batch": "batch batch_size bs num_seqs max_num_seqs",
    "tp": "tp tp_size tensor_parallel tensor_parallel_size num_gpus gpus",
    "request_rate": "request_rate req_rate offered_rate",
    "output_tokens": "output_len output_length osl max_tokens max_new_tokens",
    "label": "label class task dataset workload traffic route tenant prompt_type scenario subset "
    "category benchmark prompt domain language test",
    "engine": "engine backend",
    "version": "version engine_version build",
}
MACHINE = words("model quantization quant dtype precision gpu hardware device machine")
"""Settings that are classes of their own if each stands in several rows, and that set arms apart if
they differ between them."""

SETTINGS = (
    *words("topk top_k eagle_topk speculative_eagle_topk temperature"),
    *MACHINE,
    *words("draft_model drafter"),
)
DRAFTER = words("drafter draft_model draft draft_model_path speculative_model spec_model")
"""What drafted; blank in the rows of a baseline."""

PEAK = "peak_tok_s"
"""The best second of a run; it compares arms where nothing else does."""

HIGHER = {
    "throughput_tok_s": "output_tok_s output_tok_per_s throughput_tok_s throughput_tok_per_s tok_s "
    "tokens_per_sec tok_per_sec tokens_sec "
    "tok_per_s toks tokens_s tokens_per_s tokens_per_second output_throughput "
    "output_tokens_per_second "
    "output_throughput_tok_s output_throughput_tok_per_s throughput_tokens_per_s "
    "throughput tps gen_tok_s decode_tok_s "
    "tg_tok_s "
    "generation_tok_s output_tps tg t_s t_per_s tg_tps",
    PEAK: "peak_tok_s peak_tok_per_s peak_tps peak_throughput peak_output_throughput",
    "request_s": "req_per_s req_s request_throughput requests_per_second rps qps "
    "request_throughput_req_s request_throughput_req_per_s requests_per_s",
}
LOWER = {
    "tpot_ms": "tpot_ms mean_tpot_ms tpot mean_tpot ms_per_token ms_per_tok "
    "time_per_output_token_ms "
    "avg_tpot_ms median_tpot_ms",
    "itl_ms": "itl_ms mean_itl_ms inter_token_latency_ms",
    "latency_ms": "latency_ms avg_latency_ms mean_latency_ms e2e_ms mean_e2e_ms e2e_latency_ms "
    "mean_e2el_ms mean_e2e_latency_ms request_latency_ms",
    "ttft_ms": "ttft_ms mean_ttft_ms avg_ttft_ms first_token_ms time_to_first_token_ms",
    "decode_ms": "decode_ms decode_time_ms",
}
SECONDS = {
    "latency_ms": "latency_s avg_latency_s e2e_s latency avg_latency",
    "ttft_ms": "ttft_s first_token_s",
    "decode_ms": "decode_s decode_time_s",
    "tpot_ms": "tpot_s",
}
PARTS = {
    "draft_ms": "draft_ms drafter_ms draft_time_ms draft_ms_per_round draft_per_round_ms "
    "t_draft_ms "
    "proposal_ms",
    "verify_ms": "verify_ms backbone_ms verify_time_ms verification_ms verify_ms_per_round "
    "verify_per_round_ms target_verify_ms t_verify_ms",
    "target_step_ms": "target_ms step_ms target_step_ms target_only_ms target_only_time "
    "target_ms_per_token baseline_step_ms decode_step_ms t_target_ms",
}
"""Milliseconds of a round's parts, and of a target-only step at the same load."""

OUTCOME = {
    "output_tokens": "output_tokens generated_tokens tokens_generated completion_tokens "
    "mean_output_tokens total_output_tokens n_predicted",
    "accepted": "accepted accepted_tokens num_accepted num_accepted_tokens n_accept",
    "proposed": "drafted proposed drafted_tokens num_drafted n_drafted proposed_tokens",
    "drafts": "cycles rounds drafts num_drafts verify_calls verify_ct draft_rounds verify_steps",
    "mean_length": "tok_per_cycle accept_len accept_length acceptance_length "
    "mean_acceptance_length "
    "mean_accept_length tokens_per_round tau mal mean_len al a_len acc_len acc_length",
    "acceptance_rate": "acceptance acceptance_rate accept_rate acceptance_pct "
    "draft_acceptance_rate",
    "drafted_delta": "num_draft_tokens_delta draft_tokens_delta",
}
MEASURES = {
    metric: tuple(names.split())
    for group in (HIGHER, LOWER, PARTS, OUTCOME)
    for metric, names in group.items()
}
KNOWN = {name: metric for metric, names in MEASURES.items() for name in names}
SPEEDS = {*HIGHER, *LOWER}

_RATE = re.compile(
    r"(?:^|_)(?:tok|toks|tk|token|tokens|t)(?:_per)?_(?:s|sec|secs|second|seconds)(?:_|$)"
)
OTHER_TOKENS = {
    "input", "prompt", "prefill", "pp", "total", "peak", "accepted", "drafted", "draft", "max",
    "min", "std", "stdev", "user", "gpu", "request", "requests", "req", "cached", "proposed",
}  # fmt: skip
_NO_MEAN = re.compile(r"^(?:p\d\d|pp\d+|max|min|std|stdev|minimum|maximum|worst|best)$")
_DELTA = {
    "delta", "diff", "difference", "change", "speedup", "gain", "improvement", "vs", "relative",
    "ratio", "boost", "uplift", "faster", "slower", "x", "noise", "cv", "err", "error",
}  # fmt: skip
_SPEEDUP = {"speedup", "gain", "vs", "boost", "uplift", "x"}
_NO_SPEED = re.compile(
    r"ttft|tpot|prefill|accept|latency|memory|vram|power|energy|quality|accuracy|size|cost"
    r"|slow|overhead|loss|tax|penalty|regress|time|duration|wait"
)
_POSITION = re.compile(r"(?:^|_)(?:p|d|pos|position|token)_?(\d{1,2})$")
_POSITIONS = re.compile(r"(?:^|_)(?:pos|position|positions|[pd]_?[01]_per_[pd]_?[12])(?:_|$)")
_FRACTION = re.compile(r"^(?:acc|accept|accepted)_(?:per|of)_(?:draft|drafted|proposed|generated)$")
_PER_ROUND = re.compile(
    r"(?:per|tok|tokens|token)_(?:round|step|verify|verification|cycle|pass|iteration|iter|forward)"
)
_PER_TOKEN = re.compile(
    r"(?:time|latency|ms|s)_per_(?:output_)?tok(?:en)?(?:_|$)|(?:^|_)tpot(?:_|$)"
)
_NO_STEP = {"draft", "prompt", "prefill", "input", "kernel", "kernels", "gpu", "launch"}
"""Times per token of something else than a decode step; kernels alone are no wall time."""

_DRAFT_LENGTH = re.compile(
    r"(?:^|_)(?:k|n_max|n_draft|draft_max|depth|draft_depth|spec_len|num_spec\w*_tokens|spec_tokens)$"
)
_ARM = {"config", "configuration", "strategy", "method", "arm", "mode", "setup", "variant"}
_CLASS = (
    (
        "concurrency",
        re.compile(
            r"^(?:c|cc|np|conc|concurrency|concurrent|users|clients|streams?|slots)_?(\d{1,4})$"
        ),
    ),
    ("concurrency", re.compile(r"^(\d{1,4})_?(?:x_)?(?:concurrent|users|clients|streams?)$")),
    ("batch", re.compile(r"^(?:bs|b|batch|batch_size)_?(\d{1,4})$")),
)


def is_delta(name: str) -> bool:
    """Whether a column compares others (`Δ`, `% difference`, `MTP ×`) instead of measuring."""
    return bool(set(name.split("_")) & _DELTA)


def is_speedup(name: str) -> bool:
    """Whether a column prints a ratio of speeds (`decode speedup`, `vs none`)."""
    return bool(set(name.split("_")) & _SPEEDUP) and not _NO_SPEED.search(name)


def metric_of(name: str) -> str | None:
    """The metric of a normalised column name, or None.

    Percentiles, prompts, totals, and tokens other than output tokens are ignored.
    """
    if name in KNOWN:
        return KNOWN[name]
    found = set(name.split("_"))
    if any(_NO_MEAN.match(word) for word in found) or is_delta(name):
        return None
    if any(word.startswith("accept") for word in found) or found & {"tau", "acc"}:
        return _acceptance(name, found)
    if _PER_ROUND.search(name) and found & {"tok", "tokens", "token", "emitted", "output"}:
        return "mean_length"
    if _PER_TOKEN.search(name) and not found & _NO_STEP:
        return "tpot_ms"
    if found & {"itl"} and not found & {"draft"}:
        return "itl_ms"
    if found & {"e2e", "e2el"} and found & {"ms"}:
        return "latency_ms"
    if "ttft" in found:
        return "ttft_ms" if "ms" in found else None
    if found & {"ms", "time", "us"}:
        return _part_of_round(found)
    if found & {"throughput", "rps", "qps"} and found & {
        "request",
        "req",
        "requests",
        "rps",
        "qps",
    }:
        return "request_s"
    if _RATE.search(name) or found & {"tps", "throughput"}:
        others = found & OTHER_TOKENS
        return None if others - {"peak"} else PEAK if others else "throughput_tok_s"
    return None


def is_draft_length(name: str) -> bool:
    """Whether a column holds k under an engine's own name for it (`mtp_k`, `spec_draft_n_max`)."""
    found = set(name.split("_"))
    counts = found & {"steps", "depth"} and len(found) <= 3 and "decode" not in found
    return bool(_DRAFT_LENGTH.search(name)) or bool(counts and is_drafter(name))


def is_arm(name: str) -> bool:
    """Whether a column names the arm (`strategy_per_config`)."""
    return bool(set(name.split("_")) & _ARM)


def dimension_of(name: str) -> str | None:
    """`concurrency` for `maximum_request_concurrency` and the like; None for any other name."""
    found = set(name.split("_"))
    set_by_user = found & {"max", "maximum", "number", "num", "configured", "level"}
    return "concurrency" if "concurrency" in found and set_by_user else None


def position_of(name: str) -> int | None:
    """The draft position of a column of acceptance rates, from 0; None for any other column."""
    match = _POSITION.search(name)
    return int(match.group(1)) if match else None


def is_positions(name: str) -> bool:
    """Whether a column holds a list of acceptances, one a position (`accept_d1_per_d2_per_d3`)."""
    return bool(_POSITIONS.search(name))


def class_of(name: str) -> tuple[str, int] | None:
    """(dimension, value) of a column that is one class of traffic: `C=8`, `batch 4`, `8 users`."""
    if name in ("single_stream", "single_user", "single"):
        return "concurrency", 1
    for dimension, pattern in _CLASS:
        match = pattern.match(name)
        if match:
            return dimension, int(match.group(1))
    return None


def _acceptance(name: str, found: set[str]) -> str | None:
    if _FRACTION.match(name):
        return "accepted"
    if found & {"len", "length", "lengths", "tau"}:
        return "mean_length"
    if _PER_ROUND.search(name):
        return None  # with or without the bonus token: the name does not say
    if "accepted" in found:
        counted = found & {"tok", "toks", "tokens", "token", "drafts"} and not found & {
            "mean",
            "avg",
        }
        return "accepted" if counted and not _RATE.search(name) else None
    if _RATE.search(name) or "throughput" in found or found & {"pos", "position", "first"}:
        return None
    return "acceptance_rate"


def _part_of_round(found: set[str]) -> str | None:
    if found & {"verify", "verification", "verifier"}:
        return "verify_ms"
    if found & {"draft", "drafter", "drafting"}:
        return "draft_ms"
    if found & {"target", "baseline", "plain"} and found & {"step", "only", "time"}:
        return "target_step_ms"
    return None
