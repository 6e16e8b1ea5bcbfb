"""vLLM, at the scheduler: which tokens each step proposed, kept and gave out, and to whom.

A step of vLLM verifies what the step before drafted, then drafts for the next. A round here
is a draft with its own verification, so a step's draft time waits for the step that
verifies it, and a step's record for its times.

Prompt work is no round of a sequence: the step that ends a prompt gives out its first token
without appearing in that sequence's rounds. So a request's output is one more than the sum
of what its rounds emitted.
"""

from __future__ import annotations

import atexit
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specscope_hook.adapters.vllm_boot import served_name
from specscope_hook.adapters.vllm_lengths import Lengths
from specscope_hook.adapters.vllm_requests import Requests, end_of
from specscope_hook.adapters.vllm_rows import RowReader, Rows, all_of
from specscope_hook.attach import attach
from specscope_hook.blocks import Blocks
from specscope_hook.clock import SystemClock
from specscope_hook.columns import TimingSource
from specscope_hook.recorder import Mark
from specscope_hook.records import Boot
from specscope_hook.rules import ClassRules
from specscope_hook.settings import HookSettings

log = logging.getLogger("vllm.specscope")

NAN = math.nan
_WAITING_STEPS = 64  # rounds that wait for their times; vLLM has 2 steps in flight
_Step = tuple[int, float, float, float, float]  # tag, draft, verify, sample, idle


@dataclass(slots=True)
class _Pending:
    """A round that waits for the times of its step."""

    tag: int
    wall_us: float
    after_idle: bool
    values: dict[str, Any]


class SchedulerProbe:
    """Records one scheduler's rounds and requests. Nothing escapes from its methods."""

    def __init__(self, scheduler: Any, settings: HookSettings, boot: Boot) -> None:
        """Make the ring. Raises RingError where there is no space for one."""
        self._ring, self._recorder = attach(settings, boot)
        self._scheduler = scheduler
        rules, name = ClassRules(settings.classes), served_name(scheduler) or boot.target
        self._requests = Requests(self._recorder, rules, name)
        follow = settings.request_k
        self._blocks = Blocks(self._ring, self._recorder, boot.replica, boot.boot, follows=follow)
        self._lengths = Lengths(scheduler, self._requests, self._blocks) if follow else None
        self._reader = RowReader(self._requests)
        self._rows: Rows | None = None
        self._marks: dict[int, Mark] = {}  # the block that each planned step belongs to
        self._mark = self._recorder.mark
        self._preempted = 0
        self._tag, self._source = -1, TimingSource.HOST
        self._pending: deque[_Pending] = deque()
        self._times: dict[int, _Step] = {}
        self._carried_draft_us = 0.0
        self._last_end = 0  # 0 while the engine is idle
        self._scheduled_at = 0
        self._now, self._unix = SystemClock.monotonic_ns, SystemClock.unix_ns
        atexit.register(self.close)
        log.info("specscope records to %s", self._ring.path)

    def __bool__(self) -> bool:
        return self._recorder.on

    def _guarded(self, what: str, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            self._recorder.detach(f"vLLM, {what}: {error!r}")

    # --- what vLLM's scheduler does, as `vllm.py` tells it -------------------------------

    def admitted(self, request: Any) -> None:
        """A request has joined the queue."""
        self._guarded("admission", self._requests.admit, request)

    def before_schedule(self) -> None:
        """A step is about to be planned; a block may begin with it."""
        self._guarded("block", self._plan)

    def after_schedule(self, output: Any) -> None:
        """A step is planned."""
        self._guarded("schedule", self._planned, output)

    def before_update(self, planned: Any, made: Any) -> None:
        """The step's tokens are here and have not been given to its requests yet."""
        self._guarded("tokens", self._read_step, planned, made)

    def after_update(self, outputs: dict[int, Any]) -> None:
        """They have: some requests may have ended."""
        self._guarded("round", self._end_step, outputs)

    def finished(self, requests: Iterable[Any]) -> None:
        """Requests were ended from outside: aborted, or failed."""
        self._guarded("abort", self._requests.abort, requests)

    def limit(self, output: Any) -> None:
        """A step is about to be planned for good: how much may it draft?"""
        if self._lengths is not None:
            self._guarded("draft length", self._lengths.plan, output)

    def trim(self, drafts: Any) -> None:
        """Drafts have come back, and may be longer than their sequence's k."""
        if self._lengths is not None:
            self._guarded("trim", self._lengths.trim, drafts)

    def close(self) -> None:
        """The engine ends: write what still waits, and end the ring."""
        self._guarded("close", self._write_pending, True)
        self._guarded("close", self._recorder.close)

    # --- rounds --------------------------------------------------------------------------

    def _plan(self) -> None:
        self._blocks.turn()
        if not self._last_end:
            self._scheduled_at = self._now()

    def _planned(self, output: Any) -> None:
        """With a step in flight the next one is planned before this one's tokens are here."""
        if len(self._marks) > _WAITING_STEPS:
            self._marks.clear()
        self._marks[id(output)] = self._recorder.mark
        if output.scheduled_new_reqs:
            self._requests.scheduled(new.req_id for new in output.scheduled_new_reqs)

    # HOT PATH. Once a step over all its sequences.
    def _read_step(self, planned: Any, made: Any) -> None:
        mark = self._marks.pop(id(planned), None)
        self._rows = None
        self._take_times(made)
        if planned.total_num_scheduled_tokens:
            self._rows = self._reader.read(planned, made)
            self._mark = mark or self._recorder.mark
            self._preempted = len(planned.preempted_req_ids or ())

    def _end_step(self, outputs: dict[int, Any]) -> None:
        now = self._now()
        given = all_of(outputs)
        turns = [each for each in given if each.finish_reason is not None]
        if self._rows is not None and self._rows.prompt_tokens:
            turns = [each for each in given if each.finish_reason is not None or each.prefill_stats]
        if self._rows is not None:
            self._pend_round(self._rows, now, given, turns)
        self._write_pending(False)
        if turns:
            self._requests.given(turns, now)
        busy = self._rows is not None and bool(self._scheduler.running)
        self._last_end = now if busy else 0

    def _pend_round(self, rows: Rows, now: int, given: list[Any], turns: list[Any]) -> None:
        """The step as a round: what came out of it is known, its times may not be.

        What a sequence made is what it was given, but where it ended or got nothing.
        """
        count = len(rows.ids)
        emitted: Sequence[int] = rows.made
        ends = bytes(count)
        if turns or len(given) != count:
            made = {each.request_id: each.new_token_ids for each in given}
            emitted = [len(made.get(id_, ())) for id_ in rows.ids]
            over = [each for each in turns if each.finish_reason is not None]
            if over:
                reasons = {each.request_id: end_of(each) for each in over}
                ends = bytes([reasons.get(id_, 0) for id_ in rows.ids])
        began = self._last_end or self._scheduled_at
        values = {
            "started_at": self._unix() - (now - began),
            "waiting": self._scheduler.get_request_counts()[1],
            "prefill_tokens": rows.prompt_tokens,
            "prefill_us": NAN if rows.prompt_tokens else 0.0,
            "invalid": rows.invalid,
            "padded_tokens": rows.invalid + rows.padded,
            "preempted": self._preempted,
            "mark": self._mark,
            "requests": rows.requests,
            "classes": rows.classes,
            "contexts": rows.contexts,
            "k": rows.k,
            "accepted": rows.accepted,
            "emitted": emitted,
            "ends": ends,
        }
        self._pending.append(_Pending(self._tag, (now - began) / 1e3, not self._last_end, values))

    def _take_times(self, made: Any) -> None:
        """The times that ride on a runner's output; without them the round has none."""
        carried = getattr(made, "_specscope", None)
        if carried is None:
            self._tag, self._source = -1, TimingSource.HOST
            return
        self._tag, steps, source, fault = carried
        self._source = TimingSource(source)
        for step in steps:
            self._times[step[0]] = step
        if fault:
            self._recorder.detach(fault)

    def _write_pending(self, all_of_them: bool) -> None:
        pending = self._pending
        while pending:
            head = pending[0]
            known = head.tag in self._times
            if head.tag >= 0 and not (known or all_of_them or len(pending) > _WAITING_STEPS):
                return
            pending.popleft()
            self._write(head, self._times.pop(head.tag, None))

    def _write(self, round_: _Pending, step: _Step | None) -> None:
        """Give the round the draft time of the step before, and keep its own for the next."""
        wall = round_.wall_us
        if step is None:
            draft = verify = sample = idle = NAN
            self._carried_draft_us = NAN
        else:
            _, next_draft, verify, sample, idle = step
            next_draft = 0.0 if math.isnan(next_draft) else next_draft
            draft, self._carried_draft_us = self._carried_draft_us, next_draft
            draft = 0.0 if math.isnan(draft) else draft
            if self._source is TimingSource.HOST:
                # The host's walls run from step to step; ours from a draft to the next.
                wall += draft - next_draft
                idle = max(0.0, wall - draft - verify - sample)
            elif round_.after_idle:
                idle = NAN
        self._recorder.round(
            wall_us=wall,
            draft_us=draft,
            verify_us=verify,
            sample_us=sample,
            idle_us=idle,
            timing_source=self._source,
            **round_.values,
        )
