"""Times of a round's parts in a benchmark table, compared with a target-only step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specscope.evaluate.costs.traces import INCONSISTENT_BASELINE, judge_trace
from specscope.evaluate.verdict.verdict import Grade
from specscope.readers.records import Arm, Finding, Record

PERCENT = 100
SHORTEST_PASS_MS = 0.05
"""No verification pass is shorter: a smaller quotient was a time per round already."""


class Parts(NamedTuple):
    """Milliseconds per round; None if the table does not say."""

    draft_ms: float | None
    verify_ms: float | None

    @property
    def round_ms(self) -> float | None:
        """Verification and, if it is timed, drafting."""
        if self.verify_ms is None:
            return None
        return self.verify_ms + (self.draft_ms or 0.0)


def round_parts(arm: Arm) -> Parts:
    """The parts of a row per round: its columns may hold sums over the rounds that it counts."""
    draft, verify = arm.metrics.get("draft_ms"), arm.metrics.get("verify_ms")
    rounds = arm.metrics.get("drafts")
    if not rounds or not _is_sum(arm, verify if verify is not None else draft, rounds):
        return Parts(draft, verify)
    return Parts(
        draft / rounds if draft is not None else None,
        verify / rounds if verify is not None else None,
    )


def modelled(input: str, arms: Sequence[Arm]) -> Iterator[Record]:
    """Break-even of rows with phase times, and modelled arms if no comparison ran.

    A target-only step with draft and verify times and tokens per round gives a comparison of grade
    `modelled`: the arithmetic of one trace, never a measurement of two runs.
    """
    compared = any(arm.role in ("target_only", "k0") for arm in arms)
    even: dict[str, float] = {}
    for arm in arms:
        tokens, step = arm.metrics.get("mean_length"), arm.metrics.get("target_step_ms")
        draft, verify = round_parts(arm)
        if tokens is None and verify is not None and step is not None:
            if verify < step:
                yield _inconsistent(arm, verify, step)
            yield _even_at(arm, (draft or 0.0) + verify, step)
            continue
        if tokens is None or verify is None or tokens < 1:
            continue
        if arm.role in ("target_only", "k0") or (step is None and len(arms) == 1):
            continue  # a lone row's break-even follows from its window
        if step is None:
            even[_where(arm)] = round(((draft or 0.0) + verify) / tokens, 4)
            continue
        verdict = judge_trace(tokens, draft or 0.0, verify, step)
        where = _where(arm)
        flag = None
        if INCONSISTENT_BASELINE in verdict.flags:
            flag = _inconsistent(arm, verify, step)
            yield flag
        cause = f"; without {verdict.primary} it would win" if verdict.primary else ""
        yield Finding(
            "BREAK_EVEN",
            f"{where}: a round of {(draft or 0.0) + verify:.2f} ms gives {tokens:.2f} tokens, "
            f"{verdict.tokens_per_ms:.2f} per ms against {verdict.target_tokens_per_ms:.2f}; it is "
            f"even at {verdict.break_even_tokens:.2f} tokens a round{cause}",
            {
                "round_ms": round((draft or 0.0) + verify, 4),
                "tokens_per_round": tokens,
                "break_even_step_ms": round(((draft or 0.0) + verify) / tokens, 4),
                "break_even_tokens": round(verdict.break_even_tokens, 4),
                "target_step_ms": step,
                "primary": verdict.primary,
            },
        )
        if not compared and "throughput_tok_s" not in arm.metrics:
            yield from _pair(input, arm, step, ((draft or 0.0) + verify) / tokens, flag)
    if even:
        told = ", ".join(f"{name} {ms:.2f} ms" for name, ms in list(even.items())[:8])
        yield Finding(
            "BREAK_EVEN",
            f"speculation is even if a target-only step at this load takes: {told}",
            {"break_even_step_ms": even},
        )


def _inconsistent(arm: Arm, verify: float, step: float) -> Finding:
    return Finding(
        INCONSISTENT_BASELINE,
        f"{_where(arm)}: verification of {verify:g} ms is shorter than a target-only step of "
        f"{step:g} ms, though it reads the same weights for more tokens: the two were not "
        "taken under one load, and the gain is not to be relied on",
        {"verify_ms": verify, "target_step_ms": step, "arm": arm.arm},
    )


def _even_at(arm: Arm, round_ms: float, step: float) -> Finding:
    """What a row without tokens per round says: how many of them it takes."""
    even, accepted = round_ms / step, arm.metrics.get("accepted")
    told = "; a column `tokens_per_round` would decide"
    if accepted is not None and accepted != int(accepted):  # a mean, and no count of the run
        if accepted >= even:
            told = f"; {accepted:g} accepted a round are more, with or without that token"
        elif accepted + 1 < even:
            told = f"; {accepted:g} accepted a round are fewer, with or without that token"
        else:
            told = f"; whether {accepted:g} accepted a round count that token decides"
    return Finding(
        "BREAK_EVEN",
        f"{_where(arm)}: a round of {round_ms:.2f} ms is even with steps of {step:g} ms at "
        f"{even:.2f} tokens a round, the bonus token counted{told}",
        {
            "round_ms": round(round_ms, 4),
            "break_even_tokens": round(even, 4),
            "target_step_ms": step,
        },
    )


def _pair(
    input: str, arm: Arm, step: float, per_token: float, flag: Finding | None
) -> Iterator[Arm]:
    settings: dict[str, Any] = {"scope": f"{input}: phase times", "grade": Grade.MODELLED}
    if flag is not None:
        settings["flag"] = flag
    conditions = dict(arm.conditions)
    if not conditions:
        conditions["label"] = arm.arm
    yield Arm(
        input, "target-only step", "target_only", None, conditions, {"tpot_ms": step}, settings
    )
    yield Arm(
        input,
        f"{arm.arm} (phase times)",
        "speculative",
        arm.k,
        conditions,
        {"tpot_ms": per_token},
        settings,
    )


def _where(arm: Arm) -> str:
    told = ", ".join(f"{name} {value}" for name, value in arm.conditions.items() if name != "label")
    label = arm.conditions.get("label")
    return ", ".join(part for part in (str(label) if label else arm.arm, told) if part)


def _is_sum(arm: Arm, value: float | None, rounds: float) -> bool:
    if value is None or value / rounds < SHORTEST_PASS_MS:
        return False
    speed, tokens = arm.metrics.get("throughput_tok_s"), arm.metrics.get("mean_length")
    if not speed or not tokens or value <= 0:
        return True
    load = arm.conditions.get("batch", arm.conditions.get("concurrency", 1))
    at_once = load if isinstance(load, int | float) and load > 0 else 1
    expected = 1000 * tokens / speed * at_once
    return abs(math.log(value / rounds / expected)) < abs(math.log(value / expected))
