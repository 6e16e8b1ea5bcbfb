"""The bundled reference engine: convert its observer calls into records.

The adapter knows the fields of the engine's reports and imports nothing of the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from specscope_hook.admission import Admission
from specscope_hook.columns import End, TimingSource
from specscope_hook.digest import token_digest
from specscope_hook.recorder import UNKNOWN_U32, Recorder
from specscope_hook.ring import OTHER

_ENDS = {end.name.lower(): int(end) for end in End}
_SOURCES = {source.name.lower(): int(source) for source in TimingSource}
_UNKNOWN = (0, 255, None)


class ReferenceObserver:
    """An observer of the reference engine; every call comes from the engine's own thread."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._running: dict[str, tuple[int, int, Admission | None]] = {}
        self._leaving: dict[str, tuple[int, int, Admission | None]] = {}
        recorder.on_detach(self._forget)

    def _forget(self) -> None:
        self._running.clear()
        self._leaving.clear()

    def _guarded(self, what: str, call: Callable[[Any], None], told: Any) -> None:
        if not self._recorder.on:
            return
        try:
            call(told)
        except Exception as error:
            self._recorder.detach(f"reference engine, {what}: {error!r}")

    def round_begins(self) -> None:
        """Forget requests that ended in the round before. The engine times its own rounds."""
        self._leaving.clear()

    def admitted(self, request: Any) -> None:
        """Write a request's admission, with the hash of its id and its class."""
        self._guarded("admission", self._admitted, request)

    def _admitted(self, request: Any) -> None:
        values = self._values(request)
        admission = self._recorder.admitted(**values)
        if admission is not None:
            self._running[request.id] = (values["request"], values["class_"], admission)

    def _values(self, request: Any) -> dict[str, Any]:
        """The values of a request's admission."""
        return {
            "request": self._recorder.request_hash(request.id),
            "class_": self._recorder.class_id(request.label),
            "session": self._recorder.request_hash(request.session) if request.session else 0,
            "prompt_tokens": request.prompt_tokens,
            "admitted_at": request.arrived_ns,
            "requested_output": request.params.max_new_tokens,
            "temperature": 0.0 if request.params.greedy else request.params.temperature,
            "top_p": request.params.top_p,
            "cached_tokens": 0,
            "content": self._content(request),
        }

    def _content(self, request: Any) -> int:
        """Content hash of a deterministic request; 0 for rejection sampling."""
        params, prompt = request.params, request.prompt
        if not prompt or not (params.greedy or params.mode == "coupled"):
            return 0
        chance = () if params.greedy else (params.temperature, params.top_p, params.top_k)
        seed = None if params.greedy else params.seed
        limits = params.max_new_tokens, params.stop, params.eos
        return self._recorder.content_hash(prompt, chance, seed, *limits)

    def round_ended(self, report: Any) -> None:
        """Write the round of a RoundReport."""
        self._guarded("round", self._round_ended, report)

    def _round_ended(self, report: Any) -> None:
        known = [
            self._running.get(id_) or self._leaving.get(id_) or _UNKNOWN for id_ in report.requests
        ]
        self._recorder.round(
            started_at=report.started_at,
            waiting=report.waiting,
            wall_us=report.wall_us,
            draft_us=report.draft_us,
            verify_us=report.verify_us,
            sample_us=report.sample_us,
            idle_us=math.nan if report.idle_us is None else report.idle_us,
            catchup_us=report.catchup_us,
            prefill_us=getattr(report, "prefill_us", math.nan),
            prefill_tokens=report.prefill_tokens,
            padded_tokens=report.padded_tokens,
            preempted=report.preempted,
            timing_source=_SOURCES[report.timing_source],
            requests=[entry[0] for entry in known],
            contexts=report.contexts,
            classes=[entry[1] for entry in known],
            k=report.k,
            accepted=report.accepted,
            emitted=report.emitted,
            ends=[_ENDS[end] for end in report.ends],
        )

    def ended(self, end: Any) -> None:
        """Write the complete request, with the digest of its token ids."""
        self._guarded("end", self._ended, end)

    def _ended(self, end: Any) -> None:
        entry = self._running.pop(end.request.id, None)
        if entry is None:
            if not end.output_tokens:
                self._never_admitted(end)
            return
        self._leaving[end.request.id] = entry
        self._recorder.ended(
            entry[2],
            output_tokens=end.output_tokens,
            reason=_ENDS[end.reason],
            preemptions=end.preemptions,
            queue_ms=end.queue_ms,
            prefill_ms=end.prefill_ms,
            ttft_ms=math.nan if end.ttft_ms is None else end.ttft_ms,
            decode_ms=math.nan if end.decode_ms is None else end.decode_ms,
            e2e_ms=end.e2e_ms,
            digest=token_digest(end.token_ids),
        )

    def _never_admitted(self, end: Any) -> None:
        """Write a request that left the queue before any work; it belongs to no block."""
        values = self._values(end.request) | {"cached_tokens": UNKNOWN_U32}
        nowhere = Admission(**values, policy=0, pair=0, arm=OTHER, adapter=OTHER, guided=0)
        self._recorder.ended(nowhere, output_tokens=0, reason=_ENDS[end.reason], e2e_ms=end.e2e_ms)
