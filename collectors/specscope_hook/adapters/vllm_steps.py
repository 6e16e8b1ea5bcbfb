"""vLLM: a step on the list, until it is read while the worker computes the next one.

On vLLM's critical path a step is only added to a list: its plan, its sequences, its output counts
and the time. All other work handles several steps at once while the worker computes. The model
evicts the processor's caches between steps, and warm code costs a fifth.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from specscope_hook.recorder import Mark
from specscope_hook.timers import Sealed

TOGETHER = 32  # steps that are read and written at once
TOGETHER_SEQUENCES = 1024  # or as many as have so many sequences together: half a millisecond
TOGETHER_NS = 500_000_000  # and no later than this after the first of them
ENDED_NS = 100_000_000  # or than this, once a request has ended


NOBODY: frozenset[str] = frozenset()

Carried = tuple[int, list[Sealed], int, str, dict[str, int] | None]
"""What a worker puts on its output, as attribute `_specscope`: its own step's tag, steps that have
become known, the TimingSource, why this worker times nothing any more, once, and the drafts that
the target checked by request id, where it may be fewer than were planned. Plain values: they cross
a process each step."""


@dataclass(slots=True)
class Taken:
    """A finished step. Clock readings in ns, monotonic."""

    ids: list[str]
    """Of the requests that were scheduled."""
    scheduled: list[int] | None
    """Tokens that the target computed for each; None if one more than was drafted, for each."""
    k: bytes
    """Tokens drafted for each."""
    lengths: bytes
    """Tokens that came out of each, before vLLM cuts them at a stop; empty if none were sampled."""
    anew: Set[str]
    """Those whose prompt is computed from here on, for the first time or again."""
    refused: dict[str, int] | None
    """Of the drafts, refused by a grammar, by id."""
    preempted: int
    """Requests that were put back into the queue."""
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


Kept = tuple[Any, ...]
"""What is noted of a step on vLLM's critical path, and read by `taken`: its SchedulerOutput, which
nobody changes any more; of its ModelRunnerOutput `req_ids`, `req_id_to_index` and `_specscope`, and
how many tokens came out of each before vLLM cut them at a stop; its EngineCoreOutputs unless each
scheduled request got all of its tokens and goes on; and the last five values of a Taken."""


def all_of(outputs: dict[int, Any]) -> list[Any]:
    """The outputs of a step, over vLLM's front ends."""
    return [each for some in outputs.values() for each in some.outputs]


def taken(kept: Kept) -> Taken:
    """Read the noted values of a step."""
    planned, order, place, carried, lengths, given, *times = kept
    ids, drafts = list(planned.num_scheduled_tokens), planned.scheduled_spec_decode_tokens
    if list(drafts) == ids:
        k = bytes(map(len, drafts.values()))
    else:
        k = bytes(map(len, map(drafts.get, ids, repeat(()))))
    if lengths and order != ids:  # the plan and the runner have orders of their own
        lengths += b"\0"  # for one that the runner did not compute
        lengths = bytes(map(lengths.__getitem__, map(place.get, ids, repeat(-1))))
    new, resumed = planned.scheduled_new_reqs, planned.scheduled_cached_reqs.resumed_req_ids
    anew = NOBODY if not (new or resumed) else {each.req_id for each in new}.union(resumed)
    decodes = planned.total_num_scheduled_tokens == sum(k) + len(ids)
    turns = []
    if given is not None:
        turns = [e for e in given if e.finish_reason is not None or e.prefill_stats is not None]
        if not turns and len(given) == len(ids):
            given = None
    return Taken(
        ids,
        None if decodes else list(planned.num_scheduled_tokens.values()),
        k,
        lengths,
        anew,
        planned.num_invalid_spec_tokens,
        len(planned.preempted_req_ids or ()),
        given,
        turns,
        carried,
        *times,
    )
