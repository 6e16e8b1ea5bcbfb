"""Answer files of Spec-Bench and of EAGLE's evaluation: one line per question, with each turn's
steps.

Spec-Bench lists the accepted tokens of each step (`accept_lengths`, including the token after the
draft); EAGLE gives the number of the last step (`idxs`). If every step gave one token, the file ran
without speculation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specscope.readers.records import Arm, Record, Window
from specscope.readers.results.json_file import documents, looks_like_json
from specscope.readers.source import Source, arm_name

LARGEST = 1e9
ONE_EACH = 1.005
"""Mean tokens a step up to which a file decoded one by one: a first token may be counted apart."""


@dataclass(slots=True)
class _Answers:
    """Sums over the answers of one category."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, choice: dict[str, Any]) -> None:
        tokens, seconds = _numbers(choice.get("new_tokens")), _numbers(choice.get("wall_time"))
        steps = _steps(choice)
        if tokens is None or seconds is None or steps is None:
            return
        self.steps += steps
        self.tokens += round(sum(tokens))
        self.seconds += sum(seconds)


class AnswersJson:
    """One arm and one window per category."""

    format = "answers-json"

    def sniff(self, head: bytes) -> float:
        """0.8 for JSON lines with the tokens, the time and the steps of each turn."""
        keys = (b'"new_tokens"', b'"wall_time"', b'"turns"')
        steps = any(key in head for key in (b'"accept_lengths"', b'"idxs"', b'"decoding_steps"'))
        return 0.8 if looks_like_json(head) and steps and all(k in head for k in keys) else 0.0

    def read(self, source: Source) -> Iterator[Record]:
        """Read every category of the file."""
        found: dict[str, _Answers] = defaultdict(_Answers)
        for document in documents(source.stream):
            choices = document.get("choices") if isinstance(document, dict) else None
            for choice in choices if isinstance(choices, list) else []:
                if isinstance(choice, dict):
                    found[str(document.get("category") or "")].add(choice)
        for category, answers in found.items():
            if answers.steps and answers.seconds > 0:
                yield from _records(source.name, category, answers)


def _records(input: str, category: str, answers: _Answers) -> Iterator[Record]:
    mean, tok_s = answers.tokens / answers.steps, answers.tokens / answers.seconds
    plain = mean <= ONE_EACH
    conditions = {"label": category} if category else {}
    yield Arm(
        input,
        arm_name(input),
        "target_only" if plain else "speculative",
        None,
        conditions,
        {"throughput_tok_s": tok_s},
        {"speculation_fields": True},
    )
    if not plain:
        yield Window(
            input,
            "unknown",
            grain="run",
            label=category or arm_name(input),
            drafts=answers.steps,
            accepted=answers.tokens - answers.steps if answers.tokens >= answers.steps else None,
            seconds=answers.seconds,
            throughput_tok_s=tok_s,
            round_ms=1000 * answers.seconds / answers.steps,
        )


def _steps(choice: dict[str, Any]) -> int | None:
    """Verification steps of all turns."""
    names = ("accept_lengths", "decoding_steps", "idxs")
    lengths, steps, last = (_numbers(choice.get(name)) for name in names)
    if lengths:
        return len(lengths)
    if steps:
        return round(sum(steps))
    return round(sum(number + 1 for number in last)) if last else None


def _numbers(value: object) -> list[float] | None:
    """A list of numbers; None for anything else."""
    if not isinstance(value, list):
        return None
    found = [float(one) for one in value if isinstance(one, int | float) and 0 <= one < LARGEST]
    return found if len(found) == len(value) else None
