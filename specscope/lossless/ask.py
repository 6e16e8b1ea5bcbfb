"""Three runs of the same prompts: to the baseline one at a time, then many at once to each server.

The baseline's two runs differ only in batch size, which may change rounding. Their differences are
the reference for those of the speculative server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specscope.errors import InputError
from specscope.evaluate.outputs.divergence import Compared, Completion, compare
from specscope.lossless.client import AskedServer
from specscope.prompts import Prompt
from specscope.served import asking

Say = Callable[[str, int, int], None]
"""Told of a run's name, and how many of how many prompts are answered."""


@dataclass(frozen=True, slots=True)
class AskedPrompts:
    """The prompts that both servers answered, and reasons for the others. detailed: whether tokens
    and log-probabilities were compared rather than texts."""

    compared: tuple[Compared, ...]
    failed: tuple[str, ...]
    detailed: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """How to ask."""

    baseline: str
    speculative: str
    most_tokens: int = 128
    concurrency: int = 8
    baseline_model: str | None = None
    speculative_model: str | None = None
    timeout_s: float = 300.0


def ask(plan: Plan, prompts: Sequence[Prompt], say: Say) -> AskedPrompts:
    """Ask both servers. Raises InputError if one cannot be reached, or answers nothing."""
    return asyncio.run(_ask(plan, prompts, say))


async def _ask(plan: Plan, prompts: Sequence[Prompt], say: Say) -> AskedPrompts:
    async with asking(plan.timeout_s) as client:
        baseline = AskedServer("baseline", plan.baseline, client, plan.baseline_model)
        speculative = AskedServer("speculative", plan.speculative, client, plan.speculative_model)
        for server in (baseline, speculative):
            await server.check()
        # One question each finds out what they tell, before many are asked at once.
        runs = (
            (baseline, 1, "target-only, one at a time"),
            (baseline, plan.concurrency, "target-only, crowded"),
            (speculative, plan.concurrency, "speculative, crowded"),
        )
        answers = []
        for server, at_once, name in runs:
            first = await _run(server, prompts[:1], 1, plan.most_tokens, name, say, len(prompts))
            rest = await _run(
                server, prompts[1:], at_once, plan.most_tokens, name, say, len(prompts)
            )
            answers.append(first + rest)
    compared, failed = [], []
    for prompt, *three in zip(prompts, *answers, strict=True):
        wrong = [answer for answer in three if isinstance(answer, InputError)]
        if wrong:
            failed.append(str(wrong[0]))
        else:
            good = [answer for answer in three if isinstance(answer, Completion)]
            compared.append(compare(prompt.number, prompt.label, *good))
    if not compared:
        raise InputError(failed[0])
    detailed = baseline.detailed and speculative.detailed
    return AskedPrompts(tuple(compared), tuple(failed), detailed)


async def _run(
    server: AskedServer,
    prompts: Sequence[Prompt],
    at_once: int,
    most_tokens: int,
    name: str,
    say: Say,
    of: int,
) -> list[Completion | InputError]:
    gate = asyncio.Semaphore(at_once)
    done = 0

    async def one(prompt: Prompt) -> Completion | InputError:
        nonlocal done
        async with gate:
            try:
                return await server.ask(prompt, most_tokens)
            except InputError as error:
                return error
            finally:
                done += 1
                say(name, done + of - len(prompts), of)

    return list(await asyncio.gather(*map(one, prompts)))
