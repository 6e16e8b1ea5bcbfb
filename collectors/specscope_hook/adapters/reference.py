"""The bundled reference engine: its observer calls, turned into records.

It knows the shape of the engine's reports and imports nothing of the engine.
"""

from __future__ import annotations

import math
from typing import Any

from specscope_hook.admission import Admission
from specscope_hook.columns import End, TimingSource
from specscope_hook.digest import token_digest
from specscope_hook.recorder import Recorder

_ENDS = {end.name.lower(): int(end) for end in End}
_SOURCES = {source.name.lower(): int(source) for source in TimingSource}
_UNKNOWN = (0, 255, None)


class ReferenceObserver:
    """An observer of the reference engine; every call comes from the engine's own thread."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._running: dict[str, tuple[int, int, Admission | None]] = {}
        self._leaving: dict[str, tuple[int, int, Admission | None]] = {}

    def round_begins(self) -> None:
        """Forget requests that ended in the round before; the engine times its rounds itself."""
        self._leaving.clear()

    def admitted(self, request: Any) -> None:
        """A RequestInfo: hash its id once, give it a class, write its admission."""
        try:
            self._admitted(request)
        except Exception as error:
            self._recorder.detach(f"reference engine, admission: {error!r}")

    def _admitted(self, request: Any) -> None:
        hashed = self._recorder.request_hash(request.id)
        class_ = self._recorder.class_id(request.label)
        admission = self._recorder.admitted(
            request=hashed,
            class_=class_,
            session=self._recorder.request_hash(request.session) if request.session else 0,
            prompt_tokens=request.prompt_tokens,
            admitted_at=request.arrived_ns,
            requested_output=request.params.max_new_tokens,
            temperature=0.0 if request.params.greedy else request.params.temperature,
            top_p=request.params.top_p,
            cached_tokens=0,
            content=self._content(request),
        )
        self._running[request.id] = (hashed, class_, admission)

    def _content(self, request: Any) -> int:
        """Of a request whose text its prompt and settings decide: 0 for rejection sampling."""
        params, prompt = request.params, request.prompt
        if not prompt or not (params.greedy or params.mode == "coupled"):
            return 0
        chance = () if params.greedy else (params.temperature, params.top_p, params.top_k)
        seed = None if params.greedy else params.seed
        limits = params.max_new_tokens, params.stop, params.eos
        return self._recorder.content_hash(prompt, chance, seed, *limits)

    def round_ended(self, report: Any) -> None:
        """A RoundReport: write its round."""
        try:
            self._round_ended(report)
        except Exception as error:
            self._recorder.detach(f"reference engine, round: {error!r}")

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
        """A RequestEnd: write the request whole, with the digest of its token ids."""
        try:
            self._ended(end)
        except Exception as error:
            self._recorder.detach(f"reference engine, end: {error!r}")

    def _ended(self, end: Any) -> None:
        entry = self._running.pop(end.request.id, None)
        if entry is None:
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
