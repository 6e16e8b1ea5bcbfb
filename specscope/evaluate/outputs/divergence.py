"""Compare greedy outputs of two servers, prompt by prompt, and find near ties.

A parting is the first place at which two outputs differ. Greedy decoding is undefined if the two
best tokens are closer than the rounding error: one unit in the last place of a 16-bit logit between
16 and 32 is 0.125. So a parting is a near tie if the baseline's margin is at most twice the largest
difference that two runs showed for equal prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from specscope.evaluate.outputs.copies import Copies, check_outputs, wilson
from specscope.evaluate.outputs.lossless import near_tie
from specscope.evaluate.outputs.states import AS_TWINS, DIFFERS, EQUAL

# Rounding moves a log-probability by no more; beyond it another computation was done.
MOST_ERROR = 0.5


@dataclass(frozen=True, slots=True)
class Completion:
    """One greedy output.

    tokens: the server's token texts; None if it returns none. logprobs: log-probability of each
    token. margins: log-probability of the best token minus the second best, at each place; None if
    not given.
    """

    text: str
    count: int | None = None
    tokens: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    margins: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Parting:
    """The place at which two outputs part. unit: token or character. margin: the baseline's margin
    there."""

    at: int
    unit: str
    margin: float | None


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt: target-only compared with itself and with the speculative server.

    error: largest difference of log-probabilities at equal prefixes, before any parting.
    """

    number: int
    label: str
    twins: Parting | None
    parting: Parting | None
    twins_error: float | None
    error: float | None
    tokens: int


@dataclass(frozen=True, slots=True)
class Losslessness:
    """The result over all prompts.

    state: see `outputs.OutputCheck`. parted, twins_parted: number of prompts that part. near_ties:
    partings that a tie explains. clear: partings that no tie explains; the remaining ones lack
    data. logit_error: largest difference at equal prefixes; None without log-probabilities. excess,
    low, high: share of parting prompts minus the baseline's own, with its 95 % interval. most:
    upper limit of the share that parts. first: median place of the first parting.
    """

    state: str
    prompts: int
    parted: int
    twins_parted: int
    near_ties: int
    clear: int
    tokens: int
    logit_error: float | None
    excess: float
    low: float
    high: float
    p_value: float
    most: float
    first: float | None
    unit: str
    reason: str


def compare(
    number: int, label: str, baseline: Completion, again: Completion, speculative: Completion
) -> Compared:
    """Compare one prompt's three outputs: two of the baseline and one of the speculative server."""
    twins, twins_error = part(baseline, again)
    parting, error = part(baseline, speculative)
    return Compared(number, label, twins, parting, twins_error, error, _tokens(baseline, parting))


def part(one: Completion, other: Completion) -> tuple[Parting | None, float | None]:
    """The parting of two outputs, and the largest difference of log-probabilities before it."""
    if one.tokens is None or other.tokens is None:
        if one.text == other.text:
            return None, None
        return Parting(_first_difference(one.text, other.text), "character", None), None
    at = _first_difference(one.tokens, other.tokens)
    error = None
    if one.logprobs and other.logprobs and at:
        pairs = zip(one.logprobs[:at], other.logprobs[:at], strict=False)
        error = max(abs(a - b) for a, b in pairs)
    if at == len(one.tokens) == len(other.tokens):
        return None, error
    margin = one.margins[at] if one.margins and at < len(one.margins) else None
    return Parting(at, "token", margin), error


def judge(prompts: Sequence[Compared], logit_error: float | None = None) -> Losslessness:
    """Combine all prompts. logit_error: replaces the measured one.

    ValueError if there is no prompt.
    """
    if not prompts:
        raise ValueError("no prompt was answered by both servers")
    errors = [e for p in prompts for e in (p.twins_error, p.error) if e is not None]
    seen = max(errors, default=None)
    allowed = logit_error if logit_error is not None else seen
    partings = [prompt.parting for prompt in prompts if prompt.parting is not None]
    near = clear = 0
    for one in partings:
        if one.margin is not None and allowed is not None:
            tie = near_tie(one.margin, min(allowed, MOST_ERROR))
            near, clear = near + tie, clear + (not tie)
    twins_parted = sum(prompt.twins is not None for prompt in prompts)
    (check,) = check_outputs(
        [
            Copies("", "", "k0", len(prompts), twins_parted),
            Copies("", "", "speculative", len(prompts), len(partings)),
        ]
    )
    state, reason = check.state, "share of prompts that differ, compared with the baseline's own"
    if partings and clear:
        state, reason = DIFFERS, f"{clear} outputs differ where the baseline's best token was clear"
    elif partings and near == len(partings):
        state, reason = AS_TWINS, "every difference is at a near tie of the baseline"
    if seen is not None and seen > MOST_ERROR and logit_error is None:
        state = DIFFERS
        reason = (
            f"log-probabilities of equal prefixes differ by {seen:.2g}, more than rounding explains"
        )
    if state == EQUAL:
        reason = "no prompt shows a difference"
    return Losslessness(
        state=state,
        prompts=len(prompts),
        parted=len(partings),
        twins_parted=twins_parted,
        near_ties=near,
        clear=clear,
        tokens=sum(prompt.tokens for prompt in prompts),
        logit_error=seen,
        excess=check.excess or 0.0,
        low=-1.0 if check.low is None else check.low,
        high=1.0 if check.high is None else check.high,
        p_value=1.0 if check.p_value is None else check.p_value,
        most=wilson(len(partings), len(prompts))[1],
        first=median(one.at for one in partings) if partings else None,
        unit=partings[0].unit if partings else "token",
        reason=reason,
    )


def _first_difference(one: Sequence[str], other: Sequence[str]) -> int:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


def _tokens(baseline: Completion, parting: Parting | None) -> int:
    """Number of compared tokens of the baseline; estimated from the share of text without token
    texts."""
    count = baseline.count or len(baseline.tokens or ())
    if parting is None:
        return count
    if parting.unit == "token":
        return parting.at
    return round(count * parting.at / max(1, len(baseline.text)))
