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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from specscope_hook.adapters.vllm_boot import vllm_boot
from specscope_hook.adapters.vllm_requests import Requests, Running, end_of
from specscope_hook.attach import attach
from specscope_hook.blocks import Blocks
from specscope_hook.clock import SystemClock
from specscope_hook.columns import TimingSource
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

    def __init__(self, scheduler: Any, settings: HookSettings) -> None:
        """Make the ring. Raises RingError where there is no space for one."""
        import vllm

        config = scheduler.vllm_config
        boot = vllm_boot(config, scheduler.kv_cache_config, settings, vllm.__version__)
        self._ring, self._recorder = attach(settings, boot)
        self._scheduler = scheduler
        rules = ClassRules(settings.classes)
        self._requests = Requests(self._recorder, rules, boot.target)
        self._blocks = Blocks(self._ring, self._recorder, boot.replica, boot.boot)
        self._request_k = settings.request_k
        self._rows: list[tuple[Running, int, int, int]] = []
        self._step: dict[str, Any] | None = None
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

    def trim(self, drafts: Any) -> None:
        """Cut drafts to the policy's k, where SPECSCOPE_REQUEST_K is on."""
        if self._request_k:
            self._guarded("trim", self._trim, drafts)

    def close(self) -> None:
        """The engine ends: write what still waits, and end the ring."""
        self._guarded("close", self._write_pending, True)
        self._recorder.close()

    # --- rounds --------------------------------------------------------------------------

    def _plan(self) -> None:
        self._blocks.turn()
        if not self._last_end:
            self._scheduled_at = self._now()

    def _planned(self, output: Any) -> None:
        self._requests.scheduled(new.req_id for new in output.scheduled_new_reqs)

    # HOT PATH. Once a step over all its requests: keep the loop's body short.
    def _read_step(self, planned: Any, made: Any) -> None:
        self._step = None
        self._take_times(made)
        if not planned.total_num_scheduled_tokens:
            return
        drafts, refused = planned.scheduled_spec_decode_tokens, planned.num_invalid_spec_tokens
        place, tokens = made.req_id_to_index, made.sampled_token_ids
        running = self._requests.running
        rows: list[tuple[Running, int, int, int]] = []
        prompt_tokens = invalid = 0
        for id_, scheduled in planned.num_scheduled_tokens.items():
            state = running.get(id_)
            if state is None:
                continue
            draft = drafts.get(id_)
            k = len(draft) if draft else 0
            if not state.first_token or scheduled != k + 1:
                prompt_tokens += scheduled
                continue
            made_here = tokens[place[id_]] if tokens else ()
            if not made_here:
                continue
            if refused and id_ in refused:
                k -= refused[id_]
                invalid += refused[id_]
            accepted = len(made_here) - 1 if draft else 0
            rows.append((state, state.request.num_tokens - 1, k, accepted))
        self._rows = rows
        self._step = {
            "prefill_tokens": prompt_tokens,
            "invalid": invalid,
            "padded_tokens": invalid,
            "preempted": len(planned.preempted_req_ids or ()),
        }

    def _end_step(self, outputs: dict[int, Any]) -> None:
        now = self._now()
        given = {each.request_id: each for some in outputs.values() for each in some.outputs}
        if self._step is not None:
            self._pend_round(now, given)
        self._write_pending(False)
        self._requests.given(given, now)
        busy = bool(self._scheduler.running) and self._step is not None
        self._last_end = now if busy else 0

    def _pend_round(self, now: int, given: dict[str, Any]) -> None:
        """The step as a round: what came out of it is known, its times may not be."""
        rows = self._rows
        emitted, ends = [], []
        for row in rows:
            each = given.get(row[0].id)
            emitted.append(len(each.new_token_ids) if each is not None else 0)
            reason = each.finish_reason if each is not None else None
            ends.append(0 if reason is None else end_of(each))
        assert self._step is not None
        began = self._last_end or self._scheduled_at
        values = self._step | {
            "started_at": self._unix() - (now - began),
            "waiting": self._scheduler.get_request_counts()[1],
            "requests": [row[0].hashed for row in rows],
            "classes": [row[0].class_ for row in rows],
            "contexts": [row[1] for row in rows],
            "k": [row[2] for row in rows],
            "accepted": [row[3] for row in rows],
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
        prompt = round_.values["prefill_tokens"]
        self._recorder.round(
            wall_us=wall,
            draft_us=draft,
            verify_us=verify,
            sample_us=sample,
            idle_us=idle,
            prefill_us=NAN if prompt else 0.0,
            timing_source=self._source,
            **round_.values,
        )

    # --- per-request k -------------------------------------------------------------------

    def _trim(self, drafts: Any) -> None:
        """Shorten drafts before they are planned: the verification is saved, the draft not."""
        running, waiting = self._scheduler.get_request_counts()
        for id_, tokens in zip(drafts.req_ids, drafts.draft_token_ids, strict=True):
            state = self._requests.running.get(id_)
            if state is None:
                continue
            context = state.request.num_tokens
            k = self._blocks.k(state.label, context, state.output, running, waiting)
            if k is not None:
                del tokens[k:]
