"""vLLM: rounds with known tokens that wait for their times.

Host times come with the step's output, device times later.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from specscope_hook.adapters.vllm_rows import Rows
from specscope_hook.adapters.vllm_steps import Carried, Taken
from specscope_hook.clock import SystemClock
from specscope_hook.columns import TimingSource
from specscope_hook.recorder import Mark, Recorder
from specscope_hook.timers import Sealed, Step, StepReader

NAN = math.nan
_WAITING_STEPS = 64  # rounds that wait for their times; vLLM has 2 steps in flight
_NOT_TIMED: Carried = (-1, [], TimingSource.HOST, "", None)
_NO_BLOCK: Mark = (0, 0, 255, 0)


@dataclass(slots=True)
class Pending:
    """A round without its times."""

    tag: int  # of the step whose times it waits for; -1: none will come
    source: int
    step: Taken
    rows: Rows


class PendingRounds:
    """One scheduler's unwritten rounds, oldest first."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._rounds: deque[Pending] = deque()
        self._times: dict[int, Step] = {}
        self._read = StepReader().read
        self._draft_us = 0.0  # of the step before the first of them

    def know(self, steps: list[Sealed]) -> None:
        """Add times of steps."""
        for sealed in steps:
            step = self._read(sealed)
            self._times[step.tag] = step

    def add(self, step: Taken, rows: Rows) -> None:
        """Add a round for `write`."""
        tag, source = (
            (-1, TimingSource.HOST) if step.carried is None else (step.carried[0], step.carried[2])
        )
        self._rounds.append(Pending(tag, source, step, rows))

    def write(self, unknown: bool = False) -> None:
        """Write rounds with known times; with `unknown`, write all."""
        times, rounds = self._times, self._rounds
        offset = SystemClock.unix_ns() - SystemClock.monotonic_ns()
        while rounds:
            tag = rounds[0].tag
            if tag >= 0 and tag not in times and len(rounds) <= _WAITING_STEPS and not unknown:
                return
            self._write(rounds.popleft(), times.pop(tag, None), offset)
        if len(times) > _WAITING_STEPS:  # of steps that were no rounds
            times.clear()

    def forget(self) -> None:
        """Drop all rounds."""
        self._rounds.clear()
        self._times.clear()

    def _write(self, one: Pending, step: Step | None, offset: int) -> None:
        """Give the round the draft time of the step before, and keep its own draft time for the
        next.

        offset: wall clock minus monotonic clock, ns.
        """
        rows, taken = one.rows, one.step
        wall = (taken.ended - taken.began) / 1e3
        if step is None:
            draft = verify = sample = idle = NAN
            self._draft_us = NAN
        else:
            _, next_draft, verify, sample, idle = step
            next_draft = 0.0 if math.isnan(next_draft) else next_draft
            draft, self._draft_us = self._draft_us, next_draft
            draft = 0.0 if math.isnan(draft) else draft
            if one.source == TimingSource.HOST:
                # The host's walls run from step to step; ours from a draft to the next.
                wall += draft - next_draft
                idle = max(0.0, wall - draft - verify - sample)
            elif taken.after_idle:
                idle = NAN
        self._recorder.round(
            started_at=taken.began + offset,
            ended_ns=taken.ended,
            wall_us=wall,
            draft_us=draft,
            verify_us=verify,
            sample_us=sample,
            idle_us=idle,
            timing_source=one.source,
            waiting=taken.waiting,
            prefill_tokens=rows.prompt_tokens,
            prefill_us=NAN if rows.prompt_tokens else 0.0,
            invalid=rows.invalid,
            padded_tokens=rows.invalid + rows.padded,
            preempted=taken.preempted,
            mark=taken.mark or _NO_BLOCK,
            requests=rows.requests,
            classes=rows.classes,
            contexts=rows.contexts,
            k=rows.k,
            accepted=rows.accepted,
            emitted=rows.emitted,
            ends=rows.ends,
            verified=rows.verified,
        )
