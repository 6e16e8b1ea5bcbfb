"""The result of `lossless` as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from specscope.evaluate.outputs.divergence import Losslessness
from specscope.lossless.ask import AskedPrompts, Plan

SCHEMA = "specscope.lossless/1"

_ANSWERS = {
    "equal": "Outputs are equal",
    "as_twins": "Speculation changes outputs no more than rounding does",
    "undecided": "Not decided",
    "differs": "Speculation changes outputs",
}


def lines(plan: Plan, asked: AskedPrompts, found: Losslessness, most_shown: int = 5) -> list[str]:
    """The answer first, then its evidence."""
    said = [
        f"{_ANSWERS[found.state]}: {found.reason}.",
        f"{found.prompts} prompts, greedy, up to {plan.most_tokens} tokens, compared by "
        f"{'tokens and log-probabilities' if asked.detailed else 'text'}; {found.tokens} tokens",
        f"speculative against target-only: {found.parted} of {found.prompts} differ "
        f"(at most {found.most:.1%} of such prompts)",
        f"target-only against itself, 1 and {plan.concurrency} at once: {found.twins_parted} of "
        f"{found.prompts} differ",
        f"excess {found.excess:+.1%} ({found.low:+.1%} to {found.high:+.1%}), "
        f"p = {found.p_value:.2g}",
    ]
    if found.logit_error is not None:
        said.append(
            f"log-probabilities of equal prefixes differ by {found.logit_error:.2g} at most; "
            f"{found.near_ties} differences at near ties, {found.clear} elsewhere"
        )
    parted = [prompt for prompt in asked.compared if prompt.parting is not None]
    for prompt in parted[:most_shown]:
        assert prompt.parting is not None
        at, margin = prompt.parting, prompt.parting.margin
        tie = "" if margin is None else f", baseline's margin {margin:.3g}"
        said.append(
            f"- prompt {prompt.number} {prompt.label}: differs from {at.unit} {at.at} on{tie}"
        )
    if len(parted) > most_shown:
        said.append(f"- and {len(parted) - most_shown} more")
    if asked.failed:
        said.append(f"{len(asked.failed)} prompts without an answer: {asked.failed[0]}")
    if found.state == "undecided":
        said.append("send more prompts, or use a server that gives log-probabilities")
    return said


def as_json(plan: Plan, asked: AskedPrompts, found: Losslessness) -> dict[str, Any]:
    """All values, under the schema."""
    return {
        "schema": SCHEMA,
        "plan": asdict(plan),
        "detailed": asked.detailed,
        **asdict(found),
        "failed": list(asked.failed),
        "compared": [asdict(prompt) for prompt in asked.compared],
    }
