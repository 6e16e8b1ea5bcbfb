"""SGLang: write rounds to the ring after their times are known."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from specscope_hook.adapters.sglang_rows import Rows
from specscope_hook.clock import SystemClock
from specscope_hook.columns import TimingSource
from specscope_hook.recorder import Recorder
from specscope_hook.timers import Step, Timer

NAN = math.nan
_WAITING = 64  # batches that wait for their times; SGLang has 2 in flight


class Launch(NamedTuple):
    """A batch at its launch; times in ns, monotonic.

    depth: depth of its tree of proposals; None for a chain.
    """

    tag: int
    at: int
    after_idle: bool
    depth: int | None


@dataclass(slots=True)
class _Batch:
    """A batch that waits for its times; values: None if it was prefill only."""

    tag: int
    first: bool  # a wall began with it
    wall_us: float = NAN
    values: dict[str, Any] | None = None


class RoundWriter:
    """Write rounds. Wall time runs from the end of one round to the end of the next, or from a
    launch after idling.

    So it includes the prefill batches between two rounds, as the round's prefill time.
    """

    def __init__(self, recorder: Recorder, timer: Timer | None) -> None:
        """timer: None if parts have no times."""
        self._recorder = recorder
        self._timer = timer
        self._source = TimingSource.HOST if timer is None else timer.source
        self._began = 0
        self._prompt_tokens = 0
        self._waiting: deque[_Batch] = deque()
        self._steps: dict[int, Step] = {}
        # Of the batches of prompts that are written and whose round is not yet.
        self._prefill_us = self._idle_us = 0.0
        self._unix = SystemClock.unix_ns

    def take(self, launch: Launch, rows: Rows, now: int, *, waiting: int, preempted: int) -> None:
        """Take a batch's results. The next round includes the time of a batch without decoding
        sequences.

        waiting: requests in the queue. preempted: requests preempted since the round before.
        """
        first = launch.after_idle or not self._began
        if first:
            self._began, self._prompt_tokens = launch.at, 0
        batch = _Batch(launch.tag, first)
        self._prompt_tokens += rows.prompt_tokens
        if rows.reqs:
            batch.wall_us = (now - self._began) / 1e3
            batch.values = {
                "started_at": self._unix() - (now - self._began),
                "waiting": waiting,
                "prefill_tokens": self._prompt_tokens,
                "padded_tokens": rows.padded_tokens,
                "preempted": preempted,
                "requests": rows.requests,
                "classes": rows.classes,
                "contexts": rows.contexts,
                "k": rows.k,
                "accepted": rows.accepted,
                "emitted": rows.emitted,
                "ends": rows.ends,
            }
            if rows.prompt_tokens:  # both in one forward pass: the prompt's share is not known
                batch.values["prefill_us"] = NAN
            self._began, self._prompt_tokens = now, 0
        self._waiting.append(batch)
        self._write(all_of_them=False)

    def flush(self) -> None:
        """Write all rounds, with or without their times."""
        self._write(all_of_them=True)

    def forget(self) -> None:
        """Drop all waiting batches, because recording has ended."""
        self._waiting.clear()
        self._steps.clear()

    def _write(self, all_of_them: bool) -> None:
        if self._timer is not None:
            for known in self._timer.resolved():
                self._steps[known.tag] = known
        while self._waiting:
            tag = self._waiting[0].tag
            waits = self._timer is not None and tag not in self._steps
            if waits and not (all_of_them or len(self._waiting) > _WAITING):
                return
            self._write_one(self._waiting.popleft(), self._steps.pop(tag, None))
            if self._steps:  # a batch whose results never came leaves its times behind
                self._steps = {each: step for each, step in self._steps.items() if each > tag}

    def _write_one(self, batch: _Batch, step: Step | None) -> None:
        if batch.first:
            self._prefill_us = 0.0
            # The device idled before it for want of work, which is not between parts.
            self._idle_us = NAN
        if batch.values is None:
            self._prefill_us += NAN if step is None else step.verify_us
            self._idle_us += NAN if step is None else step.idle_us
            return
        values = {"prefill_us": self._prefill_us} | batch.values
        draft = verify = sample = idle = NAN
        if step is not None:
            verify, sample, draft = step.verify_us, step.sample_us, step.draft_us
            if math.isnan(draft) and not math.isnan(verify):
                draft = 0.0  # nothing was drafted
            idle = self._idle_us + step.idle_us
        if self._source is TimingSource.HOST and step is not None:
            parts = (draft, verify, sample, values["prefill_us"])
            busy = sum(part for part in parts if not math.isnan(part))
            idle = max(0.0, batch.wall_us - busy)
        self._prefill_us = self._idle_us = 0.0
        self._recorder.round(
            wall_us=batch.wall_us,
            draft_us=draft,
            verify_us=verify,
            sample_us=sample,
            idle_us=idle,
            timing_source=self._source,
            **values,
        )
