"""vLLM, at the scheduler: proposed, accepted and emitted tokens of each step, by request.

A step of vLLM verifies the drafts of the step before, then drafts for the next. A round is a draft
with its own verification. So a step's draft time waits for the step that verifies it, and a step's
record waits for its times.

Prefill is no round of a sequence: the prefill step emits the first token outside the sequence's
rounds. So a request's output is one token more than the sum of its rounds.

On the critical path, a step or a new request is only added to a list. `catch_up` records the list.
It runs when vLLM asks its scheduler for a grammar's bitmask, right after the worker has started the
next step.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from specscope_hook.adapters.vllm_boot import served_name
from specscope_hook.adapters.vllm_lengths import Lengths, why_not_followed
from specscope_hook.adapters.vllm_pending import PendingRounds
from specscope_hook.adapters.vllm_requests import Requests
from specscope_hook.adapters.vllm_rows import RowReader
from specscope_hook.adapters.vllm_steps import (
    ENDED_NS,
    TOGETHER,
    TOGETHER_NS,
    TOGETHER_SEQUENCES,
    Kept,
    all_of,
    taken,
)
from specscope_hook.attach import attach
from specscope_hook.blocks import Blocks
from specscope_hook.clock import SystemClock
from specscope_hook.recorder import Mark
from specscope_hook.records import Boot
from specscope_hook.rules import ClassRules
from specscope_hook.settings import HookSettings

log = logging.getLogger("vllm.specscope")

_PLANNED_STEPS = 64  # planned and not read yet; vLLM has 2 in flight


class SchedulerProbe:
    """Record one scheduler's rounds and requests. Its methods never raise."""

    def __init__(self, scheduler: Any, settings: HookSettings, boot: Boot) -> None:
        """Create the ring. Raises RingError if there is no space."""
        self._ring, self._recorder = attach(settings, boot)
        self._scheduler = scheduler
        rules, name = ClassRules(settings.classes), served_name(scheduler) or boot.target
        self._requests = Requests(self._recorder, rules, name)
        reason = why_not_followed(scheduler.vllm_config)
        follow = settings.request_k and not reason
        if settings.request_k and reason:
            log.warning("specscope follows no policy here: %s", reason)
        self._blocks = Blocks(
            self._ring, self._recorder, boot.replica, boot.boot, follows=follow, log=log
        )
        self._lengths = None
        if follow:
            self._lengths = Lengths(scheduler, self._requests, self._blocks, self._guarded)
        self._reader = RowReader(self._requests)
        self._rounds = PendingRounds(self._recorder)
        self._steps: list[Kept] = []
        self._arrivals: list[tuple[Any, int, int]] = []
        """New requests, when they came (monotonic ns), and how many of `_steps` came before."""
        self._begun: list[tuple[Any, int]] = []
        """What plans begin to work on, and when (monotonic ns)."""
        self._marks: dict[int, Mark] = {}  # the block that each planned step belongs to
        self._prompts = False
        """Whether a prompt may be worked on that has given out no token yet."""
        self._due_at = 0  # when they are to be read, monotonic ns
        self._steps_due = False
        self._last_end = 0  # 0 while the engine is idle
        self._scheduled_at = 0
        self._now = SystemClock.monotonic_ns
        self.on = True
        self.watching = True
        """Whether `before_schedule` and `after_schedule` have something to do in each step: after
        idle time, or under a policy. A new request is told to `after_schedule` all the same."""
        self.due = False
        """Whether `catch_up` is to be called once the worker computes."""
        self._recorder.on_detach(self._forget)
        atexit.register(self.close)
        log.info("specscope records to %s", self._ring.path)

    def _guarded(self, what: str, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            self.fail(f"vLLM, {what}: {error!r}")

    def fail(self, reason: str) -> None:
        """Turn the hook off, after writing all recorded rounds."""
        with suppress(Exception):
            self._read_arrivals()
            self._read_steps()
        with suppress(Exception):
            self._rounds.write(True)
        self._recorder.detach(reason)

    def _forget(self) -> None:
        """Drop all references to vLLM's objects, because their ends are no longer reported."""
        self.on = self.watching = self.due = False
        for kept in (self._rounds, self._requests, self._reader):
            kept.forget()
        self._marks.clear()
        self._steps, self._arrivals, self._begun = [], [], []
        if self._lengths is not None:
            self._lengths.follow(False)

    # --- what vLLM's scheduler does, as `vllm.py` tells it -------------------------------

    # HOT PATH. One of these a request and two a step, so without `_guarded`, which costs a call.

    def admitted(self, request: Any) -> None:
        """A request has joined the queue."""
        try:
            self._arrivals.append((request, self._now(), len(self._steps)))
            self.due = True
        except Exception as error:
            self.fail(f"vLLM, admission: {error!r}")

    def before_schedule(self) -> None:
        """Called before a step is planned, while `watching`; a block may begin with it."""
        try:
            now = self._now()
            if not self._last_end:
                self._scheduled_at = now
                self._blocks.look()
            if self._blocks.active:
                self._read_arrivals()  # their draft length is asked for in this plan
                if self._blocks.due(now):
                    self._read_steps()  # they belong to the block before
                    self._rounds.write()
                    self._recorder.flush()
                    self._blocks.advance(now)
            self._follow()
        except Exception as error:
            self.fail(f"vLLM, block: {error!r}")

    def after_schedule(self, output: Any) -> None:
        """Called after a step is planned; a step in flight may not have its tokens yet."""
        try:
            if self._blocks.gate is not None:
                if len(self._marks) > _PLANNED_STEPS:
                    self._marks.clear()
                self._marks[id(output)] = self._recorder.mark
            if output.scheduled_new_reqs:
                self._begun.append((output.scheduled_new_reqs, self._now()))
                self._prompts = True
        except Exception as error:
            self.fail(f"vLLM, schedule: {error!r}")

    def after_update(
        self, planned: Any, made: Any, lengths: bytes, outputs: dict[int, Any]
    ) -> None:
        """Called after requests received the tokens of a step; some may have ended.

        lengths: tokens of each sequence, in the runner's order, before vLLM truncated the lists
        after a stop.
        """
        try:
            now = self._now()
            steps, scheduler, last_end = self._steps, self._scheduler, self._last_end
            scheduled = planned.num_scheduled_tokens
            running = scheduler.running
            ended = scheduler.finished_req_ids
            if len(outputs) == 1:  # one front end, mostly
                (only,) = outputs.values()
                given = only.outputs
            else:
                given = all_of(outputs)
            if not (
                ended
                or self._prompts
                or len(running) != len(scheduled)
                or len(given) != len(scheduled)
                or planned.scheduled_cached_reqs.resumed_req_ids
            ):
                given = None  # each got all of its tokens and goes on; vLLM may free it
            kept = (
                planned,
                made.req_ids,
                made.req_id_to_index,
                getattr(made, "_specscope", None),
                lengths,
                given,
                last_end or self._scheduled_at,
                now,
                not last_end,
                scheduler.get_request_counts()[1],
                self._marks.pop(id(planned), None) if self._marks else None,
            )
            steps.append(kept)
            if not scheduled or not running:
                self._last_end = 0
                self.watching = True
                self.flush()
                return
            self._last_end = now
            if not last_end:
                self.watching = self._blocks.active
            waiting = len(steps)
            if waiting == 1:
                self._due_at = now + TOGETHER_NS
            if ended:
                self._due_at = min(self._due_at, now + ENDED_NS)
            if (
                now >= self._due_at
                or waiting >= TOGETHER
                or waiting * len(scheduled) >= TOGETHER_SEQUENCES
            ):
                self.due = self._steps_due = True
                if waiting >= 2 * TOGETHER:  # nobody asks for a bitmask here
                    self.flush()
        except Exception as error:
            self.fail(f"vLLM, round: {error!r}")

    def catch_up(self) -> None:
        """Record new requests, and all steps if they are due."""
        self.due = False
        if self._steps_due:
            self.flush()
            return
        try:
            self._read_arrivals()
        except Exception as error:
            self.fail(f"vLLM, admission: {error!r}")

    def flush(self) -> None:
        """Record all lists, and check for a policy."""
        self.due = self._steps_due = False
        try:
            self._recorder.flush()  # else the first record is a write of its own, being late
            self._read_arrivals()
            self._read_steps()
            self._rounds.write()
            self._recorder.flush()
            self._blocks.look()
            self._follow()
        except Exception as error:
            self.fail(f"vLLM, writing: {error!r}")

    def finished(self, requests: Iterable[Any]) -> None:
        """Requests were aborted or failed."""
        self._guarded("abort", self._abort, requests)

    def close(self) -> None:
        """Write all waiting records and close the ring. A second call does nothing."""
        atexit.unregister(self.close)
        if self._recorder.on:
            self._guarded("close", self._read_arrivals)
            self._guarded("close", self._read_steps)
            self._guarded("close", self._rounds.write, True)
        self._guarded("close", self._recorder.close)
        self._forget()

    # --- steps ---------------------------------------------------------------------------

    def _read_arrivals(self) -> None:
        """Admit the requests on the list."""
        if self._arrivals:
            arrivals, self._arrivals = self._arrivals, []
            requests, offset = self._requests, SystemClock.unix_ns() - self._now()
            for request, at, steps in arrivals:
                if request.request_id in requests.running:  # its namesake's end is not read yet
                    self._read_steps(steps)
                requests.admit(request, at, at + offset)
        if self._begun:
            begun, self._begun = self._begun, []
            for new, at in begun:
                self._requests.scheduled((each.req_id for each in new), at)

    def _read_steps(self, count: int | None = None) -> None:
        """Turn the first steps on the list, or all, into rounds that wait for their times; requests
        may end in between."""
        steps = self._steps if count is None else self._steps[:count]
        self._steps = [] if count is None else self._steps[count:]
        for kept in steps:
            step = taken(kept)
            if step.carried is not None:
                _, times, _, fault, _ = step.carried
                if fault:
                    self.fail(fault)
                    return
                self._rounds.know(times)
            if step.ids:
                self._rounds.add(step, self._reader.read(step))
            if step.turns:
                if any(each.finish_reason is not None for each in step.turns):
                    self._rounds.write()  # a request's rounds come before its end
                self._requests.given(step.turns, step.ended)
        self._prompts = bool(self._begun or self._requests.prompts)

    def _abort(self, requests: Iterable[Any]) -> None:
        self._read_arrivals()
        self._read_steps()
        self._rounds.write()
        self._requests.abort(requests, self._now())
        self._recorder.flush()

    def _follow(self) -> None:
        """Wrap draft lengths and plans only while there is a policy."""
        blocks = self._blocks
        self.watching = self.on and (not self._last_end or blocks.active)
        if self._lengths is not None:
            self._lengths.follow(blocks.gate is not None)
