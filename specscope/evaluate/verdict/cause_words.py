"""English for causes: the evidence, the missing data and the remedy of each.

Codes and numbers are data, and nothing parses a sentence, as in `words`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Numbers = Mapping[str, Any]

# A break-even beyond this is none: no number of tokens pays.
NEVER = 1e6


def _acceptance(n: Numbers) -> str:
    text = f"{n['tokens']:.2f} tokens per round, "
    if n["break_even"] >= NEVER:
        return text + "and prefill alone takes as long as target-only decoding"
    text += f"break-even at {n['break_even']:.2f}"
    if n["reach"] < n["break_even"]:
        text += f"; with half as many refusals it would reach {n['reach']:.2f}"
    return text + (f"; {n['past']:.2f} in an earlier epoch" if "past" in n else "")


def _odd_kinds(n: Numbers) -> str:
    if "refused" in n:
        return f"a grammar refuses {n['refused']:.0%} of the proposals"
    best = f"`{n['best']}`" if n["best"] else "the others"
    return f"first position kept by {n['kinds']}; by {best} {n['best_first']:.2f}"


def _draft(n: Numbers) -> str:
    return (
        f"draft takes {n['share']:.0%} of the time, {n['step_share']:.0%} of a target-only step "
        f"for each token; a healthy draft takes {n['healthy_share']:.0%}"
    )


def _prefill(n: Numbers) -> str:
    text = (
        f"prefill takes {n['own_ms']:.3g} ms per output token, target-only {n['target_ms']:.3g} ms"
    )
    if "hits" in n and "hits_before" in n and n["hits"] < n["hits_before"] / 1.1:
        text += f"; prefix hits fall from {n['hits_before']:.0%} to {n['hits']:.0%}"
    return text


def _fault(n: Numbers) -> str:
    return (
        f"{n['accepted']} of {n['proposed']} proposals accepted, {n['emitted']} tokens emitted in "
        f"{n['rounds']} rounds"
    )


EVIDENCE: Mapping[str, Callable[[Numbers], str]] = {
    "bad_baseline": lambda n: f"{n['flags']}",
    "engine_fault": _fault,
    "low_acceptance": _acceptance,
    "adapter_mismatch": _odd_kinds,
    "grammar_mismatch": _odd_kinds,
    "drafter_window": lambda n: (
        f"first position kept {n['before']:.2f} before and {n['after']:.2f} from context "
        f"{n['context']}"
    ),
    "draft_mismatch": lambda n: (
        f"first position kept {n['first']:.2f}; a draft that fits keeps at least {n['least']:.2f}"
    ),
    "late_positions": lambda n: (
        f"positions up to {n['k']:.0f} are kept {n['before']:.2f}, the next one {n['after']:.2f}: "
        f"run k = {n['k']:.0f}"
    ),
    "draft_cost": _draft,
    "draft_placement": lambda n: f"a draft step takes {n['floors']:.1f} times its floor",
    "short_output": lambda n: (
        f"{n['tokens']:.0f} tokens per request: {n['starts']:.0%} of the time is the drafter's "
        f"prefill, {n['behind_end']:.0%} of tokens lie after the end of the text"
    ),
    "idle": lambda n: f"idle between the parts {n['share']:.0%} of the time",
    "host_sync": lambda n: (
        f"a gap of {n['gap_ms']:.3g} ms at batch {n['batch']:.0f} and at {n['batch_high']:.0f}"
    ),
    "sampling": lambda n: (
        f"sampling takes {n['share']:.0%} of the time, {n['excess']:.0%} of that beyond target-only"
    ),
    "prefill_side_effect": _prefill,
    "memory_displacement": lambda n: (
        f"{n['preempted']:.0f} requests preempted, {n['preempted_before']:.0f} without "
        f"speculation; {n['batch']:.1f} at once, {n['batch_before']:.1f} without"
    ),
    "verify_cost": lambda n: (
        f"a verify pass takes {n['ratio']:.2f} times a target-only step, {n['share']:.0%} of the "
        "time"
    ),
    "padding": lambda n: f"{n['computed']:.2f} positions computed per position needed",
    "raggedness": lambda n: f"{n['share']:.0%} of positions pad short drafts to the longest",
    "staircase": lambda n: (
        f"a pass jumps from {n['before_ms']:.3g} to {n['after_ms']:.3g} ms between "
        f"{n['before']:.0f} and {n['after']:.0f} query tokens"
    ),
    "context_cost": lambda n: (
        f"{n['share']:.0%} of a verify pass reads the cache again for each draft token, at "
        f"{n['context']:.0f} tokens of context"
    ),
    "expert_union": lambda n: (
        f"batch {n['batch']:.0f}, below {n['threshold']}: up to {n['woken']:.1f} times "
        "as many experts"
    ),
    "verify_compute_bound": lambda n: (
        f"{n['n_q']:.0f} query tokens beyond the ridge at {n['ridge']:.0f}, slope "
        f"{n['slope']:.1f} of peak arithmetic"
    ),
    "overhead_bound": lambda n: f"{n['used']:.0%} of the memory bandwidth in use",
}

# What would turn the loss into a gain, as a noun.
REMEDIES: Mapping[str, str] = {
    "low_acceptance": "a draft that agrees more often with the target",
    "adapter_mismatch": "a draft that knows the adapters",
    "grammar_mismatch": "a draft that follows the grammar",
    "drafter_window": "a draft with a longer window",
    "draft_mismatch": "a draft with the target's tokenizer, template and temperature",
    "late_positions": "a shorter draft",
    "draft_cost": "a cheaper draft",
    "draft_placement": "a draft that does not wait for launches or another device",
    "short_output": "longer outputs",
    "idle": "a round without gaps",
    "host_sync": "a round that does not wait for the host",
    "sampling": "cheaper sampling",
    "prefill_side_effect": "prefill as cheap as target-only's",
    "memory_displacement": "memory for as many requests as target-only runs",
    "verify_cost": "a cheaper verify pass",
    "padding": "batches without padding",
    "raggedness": "drafts of equal length in a batch",
    "staircase": "a draft length below the jump of the verify pass",
    "context_cost": "attention that reads the cache once for all draft tokens",
    "expert_union": "a batch that uses all experts anyway",
    "verify_compute_bound": "a smaller batch or a shorter draft",
    "overhead_bound": "a verify pass with fewer launches",
}

NEEDS: Mapping[str, str] = {
    "blocks_of_other_contexts": "blocks of the same class at other contexts",
    "blocks_of_contexts_apart": "blocks at contexts that differ by half",
    "blocks_at_twice_the_batch": "blocks at twice the batch",
    "blocks_of_three_lengths": "blocks of three draft lengths",
}


# The words of records and columns whose names are ours alone.
RECORDS: Mapping[str, str] = {
    "boot": "engine", "round": "rounds", "block_time": "rounds", "request": "requests",
}  # fmt: skip
COLUMNS_OF: Mapping[str, str] = {
    "gpu_type": "GPU type",
    "draft_us": "draft time",
    "verify_us": "time of the verify pass",
    "sample_us": "sampling time",
    "idle_us": "idle time",
    "prefill_us": "prefill time",
    "model_bytes": "bytes that the model reads",
    "invalid": "proposals that the grammar forbids",
    "preempted": "preemptions",
}


def evidence(cause: str, numbers: Numbers) -> str:
    """The evidence of a cause; empty for a cause without a sentence."""
    write = EVIDENCE.get(cause)
    return "" if write is None else write(numbers)


def name(cause: str) -> str:
    """The name of a cause."""
    return cause.replace("_", " ")


def need(code: str) -> str:
    """The missing blocks, or the missing column of a record, in words."""
    if code in NEEDS:
        return NEEDS[code]
    record, dot, column = code.rpartition(".")
    what = COLUMNS_OF.get(column, name(column))
    return f"{what} of the {RECORDS.get(record, record)}" if dot else what


def remedy(causes: Sequence[str]) -> str:
    """The remedy of the first of these causes, or of one of them."""
    return " or ".join(REMEDIES.get(cause, f"a repair of {name(cause)}") for cause in causes)


def primary(numbers: Numbers, arm: str | None) -> str:
    """The single named cause, in words."""
    text = f"primary cause: {name(numbers['cause'])}"
    if numbers["speedup"] is not None:
        text += f"; without it {arm} would run at {numbers['speedup']:.2f}"
    detail = evidence(numbers["cause"], numbers)
    return f"{text} ({detail})" if detail else text


def rivals(numbers: Numbers, arm: str | None) -> str:
    """Competing causes, each with its odds."""
    causes = []
    for cause, odds, speedup in zip(
        numbers["causes"], numbers["odds"], numbers["speedups"], strict=True
    ):
        share = "not ruled out" if odds is None else f"{odds:.0%}"
        bound = "up to " if odds is None else ""
        without = "" if speedup is None else f", without it {bound}{speedup:.2f}"
        causes.append(f"{name(cause)} ({share}{without})")
    text = f"cause of the loss of {arm}: {' or '.join(causes)}"
    if numbers["needs"]:
        text += f"; to decide, collect: {', '.join(map(need, numbers['needs']))}"
    return text
