"""Assign device work to parts of a round.

The engines' names are: vLLM `gpu_model_runner: forward|sample|draft`, SGLang `draft`, `verify`,
`draft_extend`, TensorRT-LLM `prepare_draft_tokens`. Without names, the longest launch of a round is
the target's verification, because it reads the larger weights; earlier launches draft.
"""

from __future__ import annotations

import re
from collections import defaultdict

from specscope.readers.traces.spans import Span, innermost

_PHASES = (
    ("draft", re.compile(r"draft|propose|drafter|eagle|(?:^|[^a-z])mtp", re.IGNORECASE)),
    ("verify", re.compile(r"verif|target|runner: forward|(?:^|\W)forward$", re.IGNORECASE)),
    ("sample", re.compile(r"runner: sample|sampl|rejection|accept", re.IGNORECASE)),
)
LARGEST_SHARE = 0.4
"""A round of hundreds of lone kernels has no launch this large, and stays unnamed."""


def phase_of_name(name: str) -> str | None:
    """`draft`, `verify` or `sample`, if the name says so."""
    return next((phase for phase, pattern in _PHASES if pattern.search(name)), None)


def structural_phases(device: list[Span], steps: list[Span]) -> list[tuple[Span, str | None]]:
    """Phases by place: in each round the longest launch verifies, those before it draft.

    steps: the rounds, sorted by start; without any, nothing is named.
    """
    rounds: dict[int, dict[int | None, list[Span]]] = defaultdict(lambda: defaultdict(list))
    inside: list[int | None] = []
    for span in device:
        step = innermost(steps, span.start)
        inside.append(id(step) if step else None)
        if step:
            rounds[id(step)][span.key].append(span)
    phases = {number: _of_round(launches) for number, launches in rounds.items()}
    return [
        (span, phases[number].get(span.key) if number is not None else None)
        for span, number in zip(device, inside, strict=True)
    ]


def _of_round(launches: dict[int | None, list[Span]]) -> dict[int | None, str]:
    busy = {key: sum(s.end - s.start for s in spans) for key, spans in launches.items()}
    longest = max(busy, key=lambda key: busy[key])
    if busy[longest] < LARGEST_SHARE * sum(busy.values()):
        return {}
    begun = min(span.start for span in launches[longest])
    before = {key for key, spans in launches.items() if min(s.start for s in spans) < begun}
    return {
        key: "verify" if key == longest else "draft" if key in before else "sample"
        for key in launches
    }
