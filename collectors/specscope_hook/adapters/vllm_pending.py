"""vLLM: rounds whose tokens are known, until their times are.

Times come with the step's own output where the host measures them, and later where the device
does. Rounds are written several at a time: between two steps the model has emptied the
processor's caches, and code that is warm costs a fifth.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from specscope_hook.adapters.vllm_rows import Rows
from specscope_hook.clock import SystemClock
from specscope_hook.columns import TimingSource
from specscope_hook.recorder import Mark, Recorder

NAN = math.nan
_TOGETHER = 8  # rounds that are written at once
_TOGETHER_NS = 100_000_000  # and no later than this after the first of them
_WAITING_STEPS = 64  # rounds that wait for their times; vLLM has 2 steps in flight

Times = tuple[int, float, float, float, float]
"""Of a step: its tag, then microseconds of draft, verify, sample and idle."""
Carried = tuple[int, list[Times], int, str]
"""What rides on an output: see vllm_worker.Carried."""


@dataclass(slots=True)
class Pending:
    """A round but for its times; clock readings in ns, monotonic."""

    tag: int  # of the step whose times it waits for; -1: none will come
    source: int
    began: int
    ended: int
    after_idle: bool
    waiting: int
    preempted: int
    mark: Mark
    rows: Rows
    emitted: Sequence[int]
    ends: bytes


class PendingRounds:
    """One scheduler's rounds that are not on the ring yet, oldest first."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._rounds: deque[Pending] = deque()
        self.carried: list[Carried] = []
        """Times that rode on outputs and have not been looked at."""
        self._times: dict[int, Times] = {}
        self._draft_us = 0.0  # of the step before the first of them

    def add(self, pending: Pending) -> None:
        """A round more; mostly it is not written yet."""
        rounds = self._rounds
        rounds.append(pending)
        if len(rounds) >= _TOGETHER or pending.ended - rounds[0].ended > _TOGETHER_NS:
            self.write()

    def write(self, unknown: bool = False) -> None:
        """Write the rounds whose times are known; all of them where `unknown` ones may be, too."""
        times, rounds = self._times, self._rounds
        for _, steps, _, _ in self.carried:
            for step in steps:
                times[step[0]] = step
        self.carried.clear()
        offset = SystemClock.unix_ns() - SystemClock.monotonic_ns()
        while rounds:
            tag = rounds[0].tag
            if tag >= 0 and tag not in times and len(rounds) <= _WAITING_STEPS and not unknown:
                return
            self._write(rounds.popleft(), times.pop(tag, None), offset)
        if len(times) > _WAITING_STEPS:  # of steps that were no rounds
            times.clear()

    def forget(self) -> None:
        """Nothing will be written any more."""
        self._rounds.clear()
        self.carried.clear()
        self._times.clear()

    def _write(self, one: Pending, step: Times | None, offset: int) -> None:
        """Give the round the draft time of the step before, and keep its own for the next.

        offset: of the wall's clock over the monotonic one, ns.
        """
        rows = one.rows
        wall = (one.ended - one.began) / 1e3
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
            elif one.after_idle:
                idle = NAN
        self._recorder.round(
            started_at=one.began + offset,
            ended_ns=one.ended,
            wall_us=wall,
            draft_us=draft,
            verify_us=verify,
            sample_us=sample,
            idle_us=idle,
            timing_source=one.source,
            waiting=one.waiting,
            prefill_tokens=rows.prompt_tokens,
            prefill_us=NAN if rows.prompt_tokens else 0.0,
            invalid=rows.invalid,
            padded_tokens=rows.invalid + rows.padded,
            preempted=one.preempted,
            mark=one.mark,
            requests=rows.requests,
            classes=rows.classes,
            contexts=[held - 1 for held in rows.held],
            k=rows.k,
            accepted=rows.accepted,
            emitted=one.emitted,
            ends=one.ends,
        )
