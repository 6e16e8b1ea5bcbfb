"""A round between its launch and the moment its results are read, and the report made of it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from specscope.engine.api import RoundReport
from specscope.engine.parts import LAUNCH, Durations
from specscope.engine.round import Outcome
from specscope.engine.seats import Portion
from specscope.engine.sequence import Detokenize, Running
from specscope.engine.timing import Measured


@dataclass(frozen=True, slots=True)
class Flight:
    """A round whose results the host has not read."""

    rows: list[Running]
    contexts: list[int]
    result: Tensor
    outcome: Outcome
    measured: Measured
    started_at: int
    waiting: int
    portions: Sequence[Portion]


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence did in a round."""

    row: Running
    context: int
    k: int
    accepted: int
    emitted: int
    end: str


def extend_texts(
    flight: Flight, present: Collection[Running], detokenize: Detokenize | None
) -> list[Part]:
    """Add a round's tokens to the texts of those who are still `present`, and tell them."""
    parts = []
    for row, context, k, (accepted, emitted, *block) in zip(
        flight.rows, flight.contexts, flight.outcome.widths, flight.result.tolist(), strict=True
    ):
        if row in present:
            kept, end = row.extend(block[:emitted], detokenize)
            parts.append(Part(row, context, k, accepted, kept, end))
            if row.listener is not None:
                row.listener(block[:kept])
    return parts


def report_of(
    flight: Flight,
    durations: Durations,
    parts: list[Part],
    ends: Mapping[Running, str],
    timing_source: str,
) -> RoundReport:
    """The report of a round whose results are known; ends: of those who leave, and how."""
    took = durations.parts
    return RoundReport(
        started_at=flight.started_at,
        wall_us=durations.wall,
        draft_us=took["draft"],
        verify_us=took["verify"],
        sample_us=took["sample"],
        idle_us=durations.idle,
        catchup_us=took["catchup"],
        prefill_us=took["prefill"],
        timing_source=timing_source,
        waiting=flight.waiting,
        prefill_tokens=sum(portion.tokens for portion in flight.portions),
        padded_tokens=flight.outcome.padded,
        preempted=sum(end == "preempt" for end in ends.values()),
        requests=[part.row.info.id for part in parts],
        contexts=[part.context for part in parts],
        k=[part.k for part in parts],
        accepted=[part.accepted for part in parts],
        emitted=[part.emitted for part in parts],
        ends=[ends.get(part.row, "none") for part in parts],
        launch_us=max(0.0, took[LAUNCH]),
        gaps_us=durations.gaps,
    )
