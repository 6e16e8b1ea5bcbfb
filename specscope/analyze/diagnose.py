"""Findings without a baseline: coverage, break-even, acceptance by k, anomalies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from specscope.analyze.sums import Sums
from specscope.readers.records import Finding, Window

LOW_COVERAGE = 0.5
NEARLY_ALL = 0.95
KEEPS = 0.98
"""A position that adds less than 2 % of a round's tokens can hardly pay for its slot."""

POSITION_COST = 0.1
"""Assumed cost of one more position in target-only steps: one draft pass and its verification."""

DEAD_PROPOSALS = 200
"""So many rejections in a row do not happen to a drafter that works at all: 0.98^200 is 2 %."""

NO_ROOM = 1.05
"""Below so many tokens per round the gain is under 5 % even if a round cost one target step, and
drafting and verifying more than one token cost more than that."""

ENOUGH_DRAFTS = 50
MOSTLY_WASTED = 0.2
LONG_DRAFT = 4.0
SAME_ROUND = 0.15
SPREAD = 1.3


def of_totals(total: Window, sums: Sums, by_throughput: bool = True) -> Iterator[Finding]:
    """Findings on one input's pooled window."""
    if total.coverage is not None and total.coverage < LOW_COVERAGE:
        bound = sums.generated / max(sums.generated - sums.accepted_in_generated, 1.0)
        yield Finding(
            "LOW_COVERAGE",
            f"only {total.coverage:.1%} of tokens came out of speculative rounds: acceptance "
            "speaks of "
            f"them alone, and even free speculation saved at most {bound - 1:.0%} of the "
            "steps; first try "
            "this load without speculation",
            {"coverage": round(total.coverage, 4), "gain_bound": round(bound, 4)},
        )
    if total.accepted == 0 and (total.proposed or 0) >= DEAD_PROPOSALS:
        yield Finding(
            "SPEC_DEAD",
            f"none of {total.proposed} proposals was accepted",
            {"proposed": total.proposed},
        )
    yield from _no_room(total)
    k, (drafts, proposed, _) = total.k, total.counted
    if k and drafts and proposed and total.position_rates and proposed < 0.98 * k * drafts:
        yield Finding(
            "POSITION_RATES_BIASED",
            f"{proposed} proposals in {drafts} drafts are fewer than {k} each",
            {"k": k, "drafts": drafts, "proposed": proposed},
        )
    yield from _ladder(total)
    yield from _break_even(total, by_throughput)


def dead_runs(runs: Sequence[Window]) -> Iterator[tuple[str, Finding]]:
    """(input, finding) for runs without accepted tokens, if other runs have some."""
    alive = [run for run in runs if (run.acceptance_rate or 0.0) >= MOSTLY_WASTED]
    for run in runs:
        if alive and run.accepted == 0 and (run.proposed or 0) >= DEAD_PROPOSALS:
            best = max(alive, key=lambda one: one.acceptance_rate or 0.0)
            yield (
                run.input,
                Finding(
                    "SPEC_DEAD",
                    f"{run.label}: none of {run.proposed} proposals was accepted, beside "
                    f"{best.acceptance_rate:.0%} in {best.label}",
                    {"run": run.label, "proposed": run.proposed},
                ),
            )


def of_runs(runs: Sequence[Window]) -> Iterator[Finding]:
    """The difference between runs of one benchmark: acceptance, or the time of a round."""
    yield from _mismatch(runs)
    timed = [r for r in runs if r.round_ms and r.throughput_tok_s and r.mean_length]
    if len(timed) < 2:
        return
    speed = _spread([r.throughput_tok_s or 1 for r in timed])
    cost = _spread([r.round_ms or 1 for r in timed])
    tokens = _spread([r.mean_length or 1 for r in timed])
    if speed > SPREAD and math.log(cost) > 2 * math.log(tokens):
        rates = [r.acceptance_rate for r in timed if r.acceptance_rate is not None]
        best = max(timed, key=lambda r: r.acceptance_rate or 0)
        rank = sum((r.throughput_tok_s or 0) > (best.throughput_tok_s or 0) for r in timed)
        yield Finding(
            "ROUND_COST_EXPLAINS",
            f"throughput differs {speed:.2f}x, round time {cost:.2f}x, tokens per round only "
            f"{tokens:.2f}x: verification time, not the drafter; keep k and the drafter, look "
            "at the "
            "machine's state",
            {
                "throughput_spread": round(speed, 3),
                "round_ms_spread": round(cost, 3),
                "tokens_per_round_spread": round(tokens, 3),
                "acceptance_range": round(max(rates) - min(rates), 4) if rates else None,
                "highest_acceptance": best.label,
                "faster_runs_than_it": rank,
                "round_ms": {str(r.label): round(r.round_ms or 0, 1) for r in timed},
            },
        )


def _break_even(total: Window, by_throughput: bool) -> Iterator[Finding]:
    """The break-even cost of target-only decoding, per step if the round has a time."""
    tokens = total.mean_length
    if not tokens or tokens < 1:
        return
    if total.emitted and total.counted[0]:
        tokens = total.emitted / total.counted[0]
    # With many rounds that proposed nothing, the mean round and the drafts' length do not match.
    if total.round_ms is not None and (total.coverage is None or total.coverage >= NEARLY_ALL):
        even = total.round_ms / tokens
        yield Finding(
            "BREAK_EVEN",
            f"a round of {total.round_ms:.2f} ms gives {tokens:.2f} tokens: speculation is "
            "even if a "
            f"target-only step at this load takes {even:.2f} ms, and pays if it takes longer",
            {
                "round_ms": round(total.round_ms, 4),
                "tokens_per_round": round(tokens, 4),
                "break_even_step_ms": round(even, 4),
            },
        )
    elif by_throughput and total.throughput_tok_s and (total.coverage or 0) >= LOW_COVERAGE:
        yield Finding(
            "BREAK_EVEN",
            "the time of a speculative round is not in this input; speculation is even if "
            "target-only decoding "
            f"gives {total.throughput_tok_s:.1f} tok/s under the same load, and pays if it "
            "gives less",
            {"break_even_tok_s": round(total.throughput_tok_s, 2)},
        )


def _no_room(total: Window) -> Iterator[Finding]:
    tokens, drafts = total.mean_length, total.drafts
    few = drafts is not None and drafts < ENOUGH_DRAFTS
    if tokens is None or tokens >= NO_ROOM or few or total.accepted == 0:
        return
    rates = total.position_rates
    first = f"; the first proposal is kept {rates[0]:.1%} of the time" if rates and rates[0] else ""
    yield Finding(
        "NO_ROOM",
        f"{tokens:.2f} tokens per round: even if drafting were free and verification as cheap as "
        f"one target-only step, the gain is at most {tokens - 1:.1%}{first}",
        {"tokens_per_round": round(tokens, 4), "gain_bound": round(tokens, 4)},
    )


def _wasted(total: Window) -> Iterator[Finding]:
    """A long draft with low acceptance, without acceptance by position."""
    tokens, rate = total.mean_length, total.acceptance_rate
    if tokens is None or not rate or tokens <= NO_ROOM or rate >= MOSTLY_WASTED:
        return
    kept = tokens - 1
    proposed = kept / rate
    if proposed < LONG_DRAFT:
        return
    hazard = kept / (1 + kept)  # of an endless draft whose positions are all kept alike
    enough = math.ceil(math.log((1 - KEEPS) * tokens / kept) / math.log(hazard))
    if 0 < enough < proposed:
        yield Finding(
            "K_TOO_LONG",
            f"{proposed:.1f} tokens are proposed per round and {kept:.1f} of them kept: if every "
            f"position is kept alike, k = {enough} keeps {KEEPS:.0%} of the tokens (an estimate)",
            {"proposed_per_round": round(proposed, 2), "enough": enough, "estimate": True},
        )


def _ladder(total: Window) -> Iterator[Finding]:
    rates = total.position_rates
    if total.k is None or not rates or len(rates) < 2 or any(rate is None for rate in rates):
        yield from _wasted(total)
        return
    tokens = [1.0]
    for rate in rates:
        tokens.append(tokens[-1] + (rate or 0.0))
    evidence = {str(k): round(value, 4) for k, value in enumerate(tokens)}
    full = tokens[-1]
    enough = next(k for k, value in enumerate(tokens) if value >= KEEPS * full)
    best = _worth_trying(tokens)
    steps = ", ".join(f"k={k} {value:.2f}" for k, value in enumerate(tokens[: enough + 1]) if k)
    beyond = f"; further positions add less than {1 - KEEPS:.0%}" if enough < len(rates) else ""
    trial = (
        f"; try k = {best}, the fastest if a position costs a tenth of a target-only step"
        if 0 < best < len(rates)
        else ""
    )
    if enough:
        yield Finding(
            "K_LADDER",
            f"tokens per round kept: {steps}{beyond}{trial}",
            {"tokens_per_round": evidence, "try": best or None, "position_cost": POSITION_COST},
        )
    if enough < len(rates) and full > 1:
        yield Finding(
            "K_TOO_LONG",
            f"k = {enough} keeps {tokens[enough] / full:.1%} of the tokens of k = {len(rates)}",
            {"k": len(rates), "enough": enough, "keeps": round(tokens[enough] / full, 4)},
        )


def _worth_trying(tokens: Sequence[float]) -> int:
    """The k with the most tokens per unit of time, if each position costs `POSITION_COST`.

    tokens: tokens per round at k = 0, 1, ... Returns 0 if no k is faster than target-only.
    """
    return max(range(len(tokens)), key=lambda k: (tokens[k] / (1 + POSITION_COST * k), -k))


def _mismatch(runs: Sequence[Window]) -> Iterator[Finding]:
    """Equal k and rounds, but one run rejects the first position far more often."""
    seen = [r for r in runs if r.position_rates and r.position_rates[0] is not None]
    if len(seen) < 2:
        return
    low = min(seen, key=lambda r: (r.position_rates or (0.0,))[0] or 0.0)
    high = max(seen, key=lambda r: (r.position_rates or (0.0,))[0] or 0.0)
    worst, best = (low.position_rates or (0,))[0] or 0.0, (high.position_rates or (0,))[0] or 0.0
    equal = low.k == high.k and (
        not low.round_ms
        or not high.round_ms
        or abs(math.log(low.round_ms / high.round_ms)) < SAME_ROUND
    )
    if not equal or best < 2 * worst or best - worst < 0.2:
        return
    evidence: dict[str, object] = {
        "low": low.label,
        "high": high.label,
        "first_position": [round(worst, 4), round(best, 4)],
    }
    cost = ""
    if low.round_ms and high.round_ms:
        evidence["round_ms"] = [round(low.round_ms, 3), round(high.round_ms, 3)]
        cost = f" at rounds of {low.round_ms:.2f} and {high.round_ms:.2f} ms"
    yield Finding(
        "DRAFT_MISMATCH",
        f"the first position is accepted {worst:.0%} of the time in {low.label} and {best:.0%} in "
        f"{high.label}{cost}: the difference is acceptance alone. The drafter is able; "
        "proposals do "
        "not follow the target's sampling (greedy drafts against temperature > 0), template "
        "or adapter",
        evidence,
    )


def _spread(values: list[float]) -> float:
    return max(values) / min(values)
