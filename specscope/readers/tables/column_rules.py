"""What a column is when its name is in no list of `columns`: by the words in it.

Only names that say what they are: a rate of tokens, a time per token or of a part of a round, a
length or rate of acceptance, a class. Percentiles, prompts, totals, and tokens other than the
output's are left alone.
"""

from __future__ import annotations

import re

_RATE = re.compile(
    r"(?:^|_)(?:tok|toks|token|tokens|t)(?:_per)?_(?:s|sec|secs|second|seconds)(?:_|$)"
)
_OTHER_TOKENS = {
    "input", "prompt", "prefill", "pp", "total", "peak", "accepted", "drafted", "draft", "max",
    "min", "std", "stdev", "user", "gpu", "request", "requests", "req", "cached", "proposed",
}  # fmt: skip
_NO_MEAN = re.compile(r"^(?:p\d\d|max|min|std|stdev|minimum|maximum|worst|best)$")
_DELTA = {
    "delta", "diff", "difference", "change", "speedup", "gain", "improvement", "vs", "relative",
    "ratio", "boost", "uplift", "faster", "slower", "x",
}  # fmt: skip
_POSITION = re.compile(r"(?:^|_)(?:p|pos|position|token)_?(\d{1,2})$")
_PER_ROUND = re.compile(r"per_(?:round|step|verify|verification|cycle|pass|iteration|iter|forward)")
_PER_TOKEN = re.compile(
    r"(?:time|latency|ms|s)_per_(?:output_)?tok(?:en)?(?:_|$)|(?:^|_)tpot(?:_|$)"
)
_DRAFT_LENGTH = re.compile(
    r"(?:^|_)(?:k|n_max|n_draft|draft_max|depth|draft_depth|spec_len|num_spec\w*_tokens)$"
)
_ARM = {"config", "configuration", "strategy", "method", "arm", "mode", "setup", "variant"}
_CLASS = (
    ("concurrency", re.compile(r"^(?:c|cc|conc|concurrency|concurrent|users|clients)_?(\d{1,4})$")),
    ("concurrency", re.compile(r"^(\d{1,4})_?(?:x_)?(?:concurrent|users|clients|streams?)$")),
    ("batch", re.compile(r"^(?:bs|b|batch|batch_size)_?(\d{1,4})$")),
)


def is_delta(name: str) -> bool:
    """Whether a column compares others (`Δ`, `% difference`, `MTP ×`) instead of measuring."""
    return bool(set(name.split("_")) & _DELTA)


def metric_of(name: str) -> str | None:
    """The metric of `columns` that a normalised column name speaks of, or None."""
    words = name.split("_")
    found = set(words)
    if any(_NO_MEAN.match(word) for word in words) or is_delta(name):
        return None
    if any(word.startswith("accept") for word in words) or found & {"tau", "acc"}:
        return _acceptance(name, found)
    if _PER_ROUND.search(name) and found & {"tok", "tokens", "token", "emitted", "output"}:
        return "mean_length"
    if _PER_TOKEN.search(name) and not found & {"draft", "prompt", "prefill", "input"}:
        return "tpot_ms"
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
    if (_RATE.search(name) or found & {"tps", "throughput"}) and not found & _OTHER_TOKENS:
        return "throughput_tok_s"
    return None


def is_draft_length(name: str) -> bool:
    """Whether a column holds k under a name of its engine's own (`mtp_k`, `spec_draft_n_max`)."""
    return bool(_DRAFT_LENGTH.search(name))


def is_arm(name: str) -> bool:
    """Whether a column names what ran (`strategy_per_config`)."""
    return bool(set(name.split("_")) & _ARM)


def dimension_of(name: str) -> str | None:
    """`concurrency` for `maximum_request_concurrency` and the like; None for any other name."""
    found = set(name.split("_"))
    set_by_user = found & {"max", "maximum", "number", "num", "configured", "level"}
    return "concurrency" if "concurrency" in found and set_by_user else None


def position_of(name: str) -> int | None:
    """The draft position that a column of acceptance rates is of, from 0; None for any other."""
    match = _POSITION.search(name)
    return int(match.group(1)) if match else None


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
    if _RATE.search(name) or "throughput" in found:
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
