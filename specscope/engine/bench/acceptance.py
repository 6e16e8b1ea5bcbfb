"""Measures acceptance on held-out text, by drafter, class, sampling mode and k."""

from collections.abc import Sequence
from dataclasses import dataclass

from specscope.engine.api import (
    Mode,
    RequestEnd,
    RequestInfo,
    RoundReport,
    SamplingParams,
    fixed_gate,
)
from specscope.engine.decode.engine import Engine
from specscope.engine.pair import Pair, Prompt

NEW_TOKENS = 96
SETTINGS: tuple[tuple[Mode, float], ...] = (("greedy", 0.0), ("rejection", 1.0), ("coupled", 1.0))


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One cell, without rounds that the end of a text truncated.

    A drafter may propose fewer than k tokens, or none. So `first` and `prefix` count all rounds,
    and only `per_token` counts proposals.
    """

    drafter: str
    label: str
    mode: str
    k: int
    first: float
    """Share of rounds that accepted their first proposal."""
    prefix: float
    """Mean of the proposals that a round accepted; tokens per round are 1 more."""
    per_token: float
    """Accepted proposals over all proposals."""
    rounds: int


class _Tally:
    """Count complete rounds; truncated ones would lower the mean."""

    def __init__(self) -> None:
        self.rounds = self.proposed = self.accepted = self.first = 0

    def round_begins(self) -> None:
        """Nothing to note."""

    def round_ended(self, report: RoundReport) -> None:
        """Add the continuing sequences."""
        for k, accepted, end in zip(report.k, report.accepted, report.ends, strict=True):
            if end == "none":
                self.rounds += 1
                self.proposed += k
                self.accepted += accepted
                self.first += accepted > 0

    def admitted(self, request: RequestInfo) -> None:
        """Nothing to note."""

    def ended(self, end: RequestEnd) -> None:
        """Nothing to note."""


def measure(
    pair: Pair,
    prompts: Sequence[Prompt],
    ks: Sequence[int] = (1, 2, 4, 8),
    drafter: str = "model",
) -> list[Acceptance]:
    """Every class, mode and k over all `prompts` of the class, 96 new tokens each.

    Raises BadSetting if the pair has no such drafter.
    """
    cells = []
    for label in dict.fromkeys(prompt.label for prompt in prompts):
        texts = [pair.encode(prompt.text) for prompt in prompts if prompt.label == label]
        for mode, temperature in SETTINGS:
            for k in ks:
                tally = _tally(pair, texts, mode, temperature, k, drafter)
                rounds = max(1, tally.rounds)
                cells.append(
                    Acceptance(
                        drafter, label, mode, k, tally.first / rounds, tally.accepted / rounds,
                        tally.accepted / max(1, tally.proposed), tally.rounds,
                    )
                )  # fmt: skip
    return cells


def _tally(
    pair: Pair,
    texts: list[list[int]],
    mode: Mode,
    temperature: float,
    k: int,
    drafter: str,
) -> _Tally:
    tally = _Tally()
    capacity = max(map(len, texts)) + NEW_TOKENS + 1
    engine = Engine(
        pair.target, pair.drafter(drafter), k_max=k, slots=16, capacity=capacity,
        gate=fixed_gate(k), observers=[tally],
    )  # fmt: skip
    for index, text in enumerate(texts):
        params = SamplingParams(
            temperature, seed=index, max_new_tokens=NEW_TOKENS, mode=mode, eos=pair.eos
        )
        engine.submit(str(index), text, params)
    while engine.step():
        pass
    return tally


def acceptance_table(cells: Sequence[Acceptance]) -> str:
    """The cells as text, one line each."""
    head = f"{'class':8}{'mode':11}{'k':>2} {'drafter':8}{'first':>6}{'prefix':>8}"
    lines = [f"{head}{'per token':>11}{'rounds':>8}"]
    for c in sorted(cells, key=lambda c: (c.label, c.mode, c.k)):
        lines.append(
            f"{c.label:8}{c.mode:11}{c.k:2} {c.drafter:8}{c.first:6.2f}{c.prefix:8.2f}"
            f"{c.per_token:11.2f}{c.rounds:8}"
        )
    return "\n".join(lines)
