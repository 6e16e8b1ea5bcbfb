"""vLLM: a step as it is kept until the worker computes the next one, and read from then on.

On vLLM's critical path a step is only put on a list: its plan, who was computed and how much came
out, and the time. All else is done for several steps at once while the worker computes: between
two steps the model has emptied the processor's caches, and code that is warm costs a fifth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from specscope_hook.recorder import Mark
from specscope_hook.timers import Sealed

TOGETHER = 32  # steps that are read and written at once
TOGETHER_SEQUENCES = 512  # or as many as have so many sequences together: half a millisecond
TOGETHER_NS = 250_000_000  # and no later than this after the first of them
ENDED_NS = 100_000_000  # or than this, once a request has ended


Carried = tuple[int, list[Sealed], int, str, dict[str, int] | None]
"""What a worker puts on its output, as attribute `_specscope`: its own step's tag, steps that have
become known, the TimingSource, why this worker times nothing any more, once, and the drafts that
the target checked by request id, where it may be fewer than were planned. Plain values: they cross
a process each step."""


class Taken(NamedTuple):
    """A step that is over. Clock readings in ns, monotonic."""

    planned: Any
    """vLLM's SchedulerOutput; nothing of it changes any more."""
    order: Sequence[str]
    """Ids of requests, in the order of `lengths`."""
    place: dict[str, int]
    """Of each id in `order`."""
    lengths: bytes
    """Tokens that came out of each, before vLLM cuts them at a stop; empty if none were sampled."""
    given: list[Any] | None
    """What vLLM gave out; None if each scheduled request got all of its tokens and goes on."""
    turns: list[Any]
    """Of what was given: what ends a prompt's work, or its request."""
    carried: Carried | None
    """None if the worker is not timed."""
    began: int
    ended: int
    after_idle: bool
    waiting: int
    mark: Mark | None
    """The block that it was planned in; None outside of one."""


def all_of(outputs: dict[int, Any]) -> list[Any]:
    """What a step gave out, over vLLM's front ends."""
    return [each for some in outputs.values() for each in some.outputs]
