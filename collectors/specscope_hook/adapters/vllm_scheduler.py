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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from specscope_hook.adapters.vllm_boot import served_name
from specscope_hook.adapters.vllm_lengths import Lengths, why_not_followed
from specscope_hook.adapters.vllm_pending import Carried, Pending, PendingRounds
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

_PLANNED_STEPS = 64  # planned and not read yet; vLLM has 2 in flight
_NO_TIMES: Carried = (-1, [], TimingSource.HOST, "")


class SchedulerProbe:
    """Records one scheduler's rounds and requests. Nothing escapes from its methods."""

    def __init__(self, scheduler: Any, settings: HookSettings, boot: Boot) -> None:
        """Make the ring. Raises RingError where there is no space for one."""
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
        self._lengths = Lengths(scheduler, self._requests, self._blocks) if follow else None
        self._reader = RowReader(self._requests)
        self._rows: Rows | None = None
        self._marks: dict[int, Mark] = {}  # the block that each planned step belongs to
        self._mark = self._recorder.mark
        self._preempted = 0
        self._carried = _NO_TIMES
        self._rounds = PendingRounds(self._recorder)
        self._last_end = 0  # 0 while the engine is idle
        self._scheduled_at = 0
        self._now = SystemClock.monotonic_ns
        self._recorder.on_detach(self._forget)
        atexit.register(self.close)
        log.info("specscope records to %s", self._ring.path)

    def __bool__(self) -> bool:
        return self._recorder.on

    def _guarded(self, what: str, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            self._fail(f"vLLM, {what}: {error!r}")

    def _fail(self, reason: str) -> None:
        """Be off from here on; what was recorded until here is written."""
        with suppress(Exception):
            self._rounds.write(True)
        self._recorder.detach(reason)

    def _forget(self) -> None:
        """Nobody says any more what ends: keep nothing of vLLM's for the rest of its life."""
        for kept in (self._rounds, self._requests, self._reader):
            kept.forget()
        self._marks.clear()
        self._rows = None

    # --- what vLLM's scheduler does, as `vllm.py` tells it -------------------------------

    def admitted(self, request: Any) -> None:
        """A request has joined the queue."""
        self._guarded("admission", self._requests.admit, request)

    # HOT PATH: four of these a step, so without `_guarded`, which costs a call more.

    def before_schedule(self) -> None:
        """A step is about to be planned; a block may begin with it."""
        try:
            self._blocks.turn()
            if not self._last_end:
                self._scheduled_at = self._now()
        except Exception as error:
            self._fail(f"vLLM, block: {error!r}")

    def after_schedule(self, output: Any) -> None:
        """A step is planned; with one in flight, before the tokens of that one are here."""
        try:
            if len(self._marks) > _PLANNED_STEPS:
                self._marks.clear()
            self._marks[id(output)] = self._recorder.mark
            if output.scheduled_new_reqs:
                self._requests.scheduled(new.req_id for new in output.scheduled_new_reqs)
        except Exception as error:
            self._fail(f"vLLM, schedule: {error!r}")

    def before_update(self, planned: Any, made: Any) -> None:
        """The step's tokens are here and have not been given to its requests yet."""
        try:
            mark = self._marks.pop(id(planned), None)
            self._rows = None
            self._carried = carried = getattr(made, "_specscope", _NO_TIMES)
            if carried[3]:
                self._fail(carried[3])
                return
            if carried is not _NO_TIMES:
                self._rounds.carried.append(carried)
            if planned.total_num_scheduled_tokens:
                self._rows = self._reader.read(planned, made)
                self._mark = mark or self._recorder.mark
                self._preempted = len(planned.preempted_req_ids or ())
        except Exception as error:
            self._fail(f"vLLM, tokens: {error!r}")

    def after_update(self, outputs: dict[int, Any]) -> None:
        """They have: some requests may have ended."""
        if not self._recorder.on:
            return  # since `before_update`
        try:
            now, rows = self._now(), self._rows
            if len(outputs) == 1:  # one front end, mostly
                (only,) = outputs.values()
                given = only.outputs
            else:
                given = all_of(outputs)
            prompts = rows is not None and rows.prompt_tokens
            turns = []
            for each in given:
                if each.finish_reason is not None or (prompts and each.prefill_stats):
                    turns.append(each)
            if rows is not None:
                self._pend_round(rows, now, given, turns)
            busy = rows is not None and self._scheduler.running
            self._last_end = now if busy else 0
            if turns or not busy:
                self._rounds.write()
                self._requests.given(turns, now)
        except Exception as error:
            self._fail(f"vLLM, round: {error!r}")

    def finished(self, requests: Iterable[Any]) -> None:
        """Requests were ended from outside: aborted, or failed."""
        self._guarded("abort", self._abort, requests)

    def _abort(self, requests: Iterable[Any]) -> None:
        self._rounds.write()  # a request's rounds come before its end
        self._requests.abort(requests)

    def limit(self, output: Any) -> None:
        """A step is about to be planned for good: how much may it draft?"""
        if self._lengths is not None:
            self._guarded("draft length", self._lengths.plan, output)

    def trim(self, drafts: Any) -> None:
        """Drafts have come back, and may be longer than their sequence's k."""
        if self._lengths is not None:
            self._guarded("trim", self._lengths.trim, drafts)

    def close(self) -> None:
        """The engine ends: write what still waits, and end the ring. A second call does nothing."""
        atexit.unregister(self.close)
        if self._recorder.on:
            self._guarded("close", self._rounds.write, True)
        self._guarded("close", self._recorder.close)
        self._forget()

    # --- rounds --------------------------------------------------------------------------

    def _pend_round(self, rows: Rows, now: int, given: list[Any], turns: list[Any]) -> None:
        """The step as a round: what came out of it is known, its times may not be.

        What a sequence made is what it was given, but where it ended or got nothing.
        """
        emitted: Sequence[int] = rows.made
        ends = bytes(len(rows.ids))
        if turns or len(given) != len(rows.ids):
            made = {each.request_id: each.new_token_ids for each in given}
            if not made.keys() >= set(rows.ids):
                rows = rows.only(made)  # vLLM drops what was made for a request it put back
            emitted = [len(made[id_]) for id_ in rows.ids]
            ends = bytes(len(rows.ids))
            over = [each for each in turns if each.finish_reason is not None]
            if over:
                reasons = {each.request_id: end_of(each) for each in over}
                ends = bytes([reasons.get(id_, 0) for id_ in rows.ids])
        last_end = self._last_end
        self._rounds.add(
            Pending(
                self._carried[0],
                self._carried[2],
                last_end or self._scheduled_at,
                now,
                not last_end,
                self._scheduler.get_request_counts()[1],
                self._preempted,
                self._mark,
                rows,
                emitted,
                ends,
            )
        )
