"""A round between its launch and the moment its results are read, and the report made of it."""

from dataclasses import dataclass

from torch import Tensor

from specscope.engine.api import RoundReport
from specscope.engine.round import Outcome
from specscope.engine.sequence import Running
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
    prefill_tokens: int


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence did in a round."""

    row: Running
    context: int
    k: int
    accepted: int
    emitted: int
    end: str


def report_of(flight: Flight, parts: list[Part], timing_source: str) -> RoundReport:
    """The report of a round whose marks have passed."""
    durations = flight.measured.read()
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
        prefill_tokens=flight.prefill_tokens,
        padded_tokens=flight.outcome.padded,
        preempted=0,
        requests=[part.row.info.id for part in parts],
        contexts=[part.context for part in parts],
        k=[part.k for part in parts],
        accepted=[part.accepted for part in parts],
        emitted=[part.emitted for part in parts],
        ends=[part.end for part in parts],
    )
