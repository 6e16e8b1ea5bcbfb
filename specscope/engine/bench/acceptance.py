"""Measures acceptance on held-out text, by class, sampling mode and k."""

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
from specscope.engine.decode.drafters.draft_model import ModelDrafter
from specscope.engine.decode.drafters.drafter import Drafter
from specscope.engine.decode.engine import Engine
from specscope.engine.pair import Pair, Prompt

NEW_TOKENS = 96
SETTINGS: tuple[tuple[Mode, float], ...] = (("greedy", 0.0), ("rejection", 1.0), ("coupled", 1.0))


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One cell: acceptance per proposed token, and tokens per round, rounds cut short left out."""

    label: str
    mode: str
    k: int
    per_token: float
    tokens_per_round: float
    rounds: int


class _Tally:
    """Counts whole rounds; one that the text's end cut short would pull the mean down."""

    def __init__(self) -> None:
        self.rounds = self.proposed = self.accepted = 0

    def round_begins(self) -> None:
        """Nothing to note."""

    def round_ended(self, report: RoundReport) -> None:
        """Add the sequences that go on."""
        for k, accepted, end in zip(report.k, report.accepted, report.ends, strict=True):
            if end == "none":
                self.rounds += 1
                self.proposed += k
                self.accepted += accepted

    def admitted(self, request: RequestInfo) -> None:
        """Nothing to note."""

    def ended(self, end: RequestEnd) -> None:
        """Nothing to note."""


def measure(
    pair: Pair,
    prompts: Sequence[Prompt],
    ks: Sequence[int] = (1, 2, 4, 8),
    drafter: Drafter | None = None,
) -> list[Acceptance]:
    """Every class, mode and k over all `prompts` of the class, 96 new tokens each."""
    cells = []
    for label in dict.fromkeys(prompt.label for prompt in prompts):
        texts = [pair.encode(prompt.text) for prompt in prompts if prompt.label == label]
        for mode, temperature in SETTINGS:
            for k in ks:
                tally = _tally(pair, texts, mode, temperature, k, drafter)
                rounds = max(1, tally.rounds)
                cells.append(
                    Acceptance(
                        label, mode, k, tally.accepted / max(1, tally.proposed),
                        1 + tally.accepted / rounds, tally.rounds,
                    )
                )  # fmt: skip
    return cells


def _tally(
    pair: Pair,
    texts: list[list[int]],
    mode: Mode,
    temperature: float,
    k: int,
    drafter: Drafter | None,
) -> _Tally:
    tally = _Tally()
    capacity = max(map(len, texts)) + NEW_TOKENS + 1
    if drafter is None:
        assert pair.draft is not None
        drafter = ModelDrafter(pair.draft)
    engine = Engine(
        pair.target, drafter, k_max=k, slots=16, capacity=capacity, gate=fixed_gate(k),
        observers=[tally],
    )  # fmt: skip
    for index, text in enumerate(texts):
        params = SamplingParams(
            temperature, seed=index, max_new_tokens=NEW_TOKENS, mode=mode, eos=pair.eos
        )
        engine.submit(str(index), text, params)
    while engine.step():
        pass
    return tally
