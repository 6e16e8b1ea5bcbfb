"""SGLang, at the scheduler: proposed, accepted and emitted tokens of each batch, by request.

A batch of decoding sequences is a round, because SGLang drafts and verifies in one batch. A prefill
batch is no round; its time becomes the prefill time of the next round. In the overlap schedule, a
batch's results are read while the next batch runs. So the facts of its launch travel with its
result, as attribute `_specscope`.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import Any

from specscope_hook.adapters.sglang_boot import branches
from specscope_hook.adapters.sglang_requests import Requests
from specscope_hook.adapters.sglang_rounds import Launch, RoundWriter
from specscope_hook.adapters.sglang_rows import RowReader, Rows
from specscope_hook.adapters.sglang_worker import Check, WorkerProbe
from specscope_hook.attach import attach
from specscope_hook.clock import SystemClock
from specscope_hook.columns import End
from specscope_hook.errors import HookError
from specscope_hook.records import Boot
from specscope_hook.rules import ClassRules
from specscope_hook.settings import HookSettings

log = logging.getLogger("sglang.specscope")


class SchedulerProbe:
    """Record one scheduler's rounds and requests. Its methods never raise."""

    def __init__(self, scheduler: Any, settings: HookSettings, boot: Boot, check: Check) -> None:
        """Create the ring and wrap the workers. Raises RingError if the ring cannot be created."""
        self._ring, self._recorder = attach(settings, boot)
        self._scheduler = scheduler
        rules = ClassRules(settings.classes)
        arguments = getattr(scheduler, "server_args", None)
        name = getattr(arguments, "served_model_name", None) or boot.target
        self._requests = Requests(self._recorder, rules, scheduler, str(name))
        self._reader = RowReader(self._requests)
        self._worker = self._time(scheduler, check, boot.engine_version)
        timer = None if self._worker is None else self._worker.timer
        self._writer = RoundWriter(self._recorder, timer)
        self._branches = scheduler.draft_worker is not None and branches(scheduler.draft_worker)
        self._rows: Rows | None = None
        self._launched_at = 0
        self._preempted = 0
        self._flushed = True  # nothing has happened since the engine was last idle
        self._tag = 0
        self._now = SystemClock.monotonic_ns
        self._recorder.on_detach(self._forget)
        atexit.register(self.close)
        log.info("specscope records to %s", self._ring.path)

    def _time(self, scheduler: Any, check: Check, version: str) -> WorkerProbe | None:
        """Timers at the workers, or a log line with the reason for missing times."""
        try:
            worker = WorkerProbe(scheduler, self._guarded)
            worker.hook(check, version)
        except Exception as error:
            why = error if isinstance(error, HookError) else repr(error)
            log.warning("specscope has no times of a round's parts: %s", why)
            return None
        return worker

    def _forget(self) -> None:
        """Drop references to SGLang's requests and batches after recording has ended."""
        self._rows = None
        self._requests.running.clear()
        self._reader.forget()
        self._writer.forget()

    def __bool__(self) -> bool:
        return self._recorder.on

    def _guarded(self, what: str, call: Callable[..., None], *args: Any) -> None:
        if not self._recorder.on:
            return
        try:
            call(*args)
        except Exception as error:
            self._recorder.detach(f"SGLang, {what}: {error!r}")

    # --- what SGLang's scheduler does, as `sglang.py` tells it ---------------------------

    def queued(self, req: Any) -> None:
        """A request joins the queue, or is preempted into it."""
        self._guarded("admission", self._queued, req)

    def aborted(self, req: Any) -> None:
        """A request outside all batches ended: aborted in the queue, or rejected."""
        self._guarded("abort", self._requests.end, req, End.ABORT)

    def before_launch(self, batch: Any) -> None:
        """Called before a batch's launch."""
        self._guarded("launch", self._launch, batch)

    def after_launch(self, batch: Any, result: Any) -> None:
        """Called after a batch's launch, before its tokens are known."""
        self._guarded("launched", self._launched, batch, result)

    def before_results(self, batch: Any, result: Any) -> None:
        """Called before requests receive a batch's tokens."""
        self._guarded("tokens", self._read, batch, result)

    def after_results(self, result: Any) -> None:
        """Called after requests received a batch's tokens; some may have ended."""
        self._guarded("round", self._end, result)

    def idle(self) -> None:
        """Called repeatedly while no batch runs and no result is due."""
        if not self._flushed:
            self._guarded("idle", self._flush)

    def close(self) -> None:
        """Write all waiting records and close the ring at the end of the engine."""
        self._guarded("close", self._writer.flush)
        self._guarded("close", self._recorder.close)

    # --- in a step -----------------------------------------------------------------------

    def _flush(self) -> None:
        """Flush all rounds to the sidecar, also if requests wait and none can run."""
        self._flushed = True
        self._writer.flush()
        self._recorder.flush()

    def _queued(self, req: Any) -> None:
        self._flushed = False
        if self._requests.queue(req):
            self._preempted += 1

    # HOT PATH. Once a batch over all its sequences.
    def _launch(self, batch: Any) -> None:
        mode = batch.forward_mode
        self._launched_at = 0
        if not batch.reqs or mode.is_idle():  # a rank that only keeps others company
            return
        self._launched_at = self._now()
        decoding = mode.is_decode()
        if not decoding:
            self._requests.scheduled(batch.reqs)
        if self._worker is not None:
            self._worker.begin(decoding)

    def _launched(self, batch: Any, result: Any) -> None:
        if not self._launched_at:
            return
        self._tag += 1
        if self._worker is not None:
            self._worker.end(self._tag)
        # Under adaptive speculation the depth is another one when the results are read.
        depth = self._scheduler.draft_worker.speculative_num_steps if self._branches else None
        after_idle = bool(batch.after_idle_gap)
        result._specscope = Launch(self._tag, self._launched_at, after_idle, depth)

    def _read(self, batch: Any, result: Any) -> None:
        self._rows = None
        if getattr(result, "_specscope", None) is not None:
            self._rows = self._reader.before(batch)

    def _end(self, result: Any) -> None:
        rows, now = self._rows, self._now()
        if rows is None:
            return
        self._rows, self._flushed = None, False
        launch = result._specscope
        self._reader.after(rows, result, launch.depth)
        waiting = len(self._scheduler.waiting_queue)
        self._writer.take(launch, rows, now, waiting=waiting, preempted=self._preempted)
        if rows.reqs:
            self._preempted = 0
        self._requests.given(rows.turns, now)
