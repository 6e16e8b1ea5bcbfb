"""Which part of a round a piece of device work belongs to.

Names that engines use: vLLM `gpu_model_runner: forward|sample|draft`, SGLang `draft`, `verify`,
`draft_extend`, TensorRT-LLM `prepare_draft_tokens`. Where nothing is named, the largest launch of a
round is the target's verification, since it reads the larger weights; what runs before it drafts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specscope.readers.timeline import Span

_PHASES = (
    ("draft", re.compile(r"draft|propose|drafter|eagle|(?:^|[^a-z])mtp", re.IGNORECASE)),
    ("verify", re.compile(r"verif|target|runner: forward|(?:^|\W)forward$", re.IGNORECASE)),
    ("sample", re.compile(r"runner: sample|sampl|rejection|accept", re.IGNORECASE)),
)


def phase_of_name(name: str) -> str | None:
    """`draft`, `verify` or `sample`, if the name says so."""
    return next((phase for phase, pattern in _PHASES if pattern.search(name)), None)


def structural_phases(
    device: list[Span], steps: list[tuple[float, float]]
) -> list[tuple[Span, str | None]]:
    """Phases by place: in each round the longest launch verifies, those before it draft.

    Needs launches that own several kernels or rounds of few launches; a round of hundreds of lone
    kernels has no longest launch, and stays unnamed.
    """
    if not steps:
        return [(span, None) for span in device]
    phases: dict[tuple[int, int | None], str | None] = {}
    for number, (start, end) in enumerate(steps):
        groups: dict[int | None, list[Span]] = defaultdict(list)
        for span in device:
            if start <= span.start < end:
                groups[span.key].append(span)
        if not groups:
            continue
        busy = {key: sum(s.end - s.start for s in spans) for key, spans in groups.items()}
        longest = max(busy, key=lambda key: busy[key])
        if busy[longest] < 0.4 * sum(busy.values()):
            continue
        begun = min(span.start for span in groups[longest])
        for key, spans in groups.items():
            before = min(span.start for span in spans) < begun
            phases[number, key] = "verify" if key == longest else "draft" if before else "sample"
    named: list[tuple[Span, str | None]] = []
    for span in device:
        number = next((i for i, (s, e) in enumerate(steps) if s <= span.start < e), -1)
        named.append((span, phases.get((number, span.key))))
    return named
