"""SGLang: its requests, from the scheduler's queue to their end."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specscope_hook.admission import Admission
from specscope_hook.clock import SystemClock
from specscope_hook.columns import End
from specscope_hook.digest import token_digest
from specscope_hook.recorder import Recorder
from specscope_hook.rules import ClassRules, Facts

NAN = math.nan
_HEALTH_CHECK = "HEALTH_CHECK"  # SGLang's own probes of itself begin with it
_GUIDES = ("json_schema", "regex", "ebnf", "structural_tag")
_SHAPES = (
    *_GUIDES, "max_new_tokens", "min_new_tokens", "stop_strs", "stop_regex_strs", "stop_token_ids",
    "ignore_eos", "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias",
    "custom_params", "beam_width", "watermark", "ebnf_full_assistant",
)  # fmt: skip
"""Sampling parameters that shape a greedy output."""
_BESIDES = (
    "multimodal_inputs", "input_embeds", "positional_embed_overrides", "custom_logit_processor",
)  # fmt: skip
"""What makes a request more than token ids and sampling parameters."""


@dataclass(slots=True)
class Running:
    """A request between its admission and its end; times in ns, monotonic."""

    hashed: int
    class_: int
    admission: Admission | None
    arrived: int
    scheduled: int = 0
    first_token: int = 0
    preemptions: int = 0


class Requests:
    """The requests of one scheduler; its callers catch all exceptions."""

    def __init__(self, recorder: Recorder, rules: ClassRules, scheduler: Any, model: str) -> None:
        self._recorder = recorder
        self._rules = rules
        self._scheduler = scheduler
        self._model = model
        self._now = SystemClock.monotonic_ns
        self.running: dict[str, Running] = {}

    def queue(self, req: Any) -> bool:
        """Add a request to the queue. Returns whether it was preempted before."""
        state = self.running.get(req.rid)
        if state is not None:
            state.preemptions += 1
            return True
        if not req.rid.startswith(_HEALTH_CHECK):
            self._admit(req)
        return False

    def _admit(self, req: Any) -> None:
        sampling, recorder = req.sampling_params, self._recorder
        adapter = self._adapter(req.lora_id)
        guided = any(getattr(sampling, name) is not None for name in _GUIDES)
        # SGLang turns temperature 0 into the best token of temperature 1.
        temperature = 0.0 if sampling.top_k == 1 else float(sampling.temperature)
        requested = sampling.max_new_tokens
        label = self._rules.label(
            Facts(
                request_id=req.rid,
                adapter=adapter,
                model=self._model,
                temperature=temperature,
                top_p=sampling.top_p,
                prompt_tokens=len(req.origin_input_ids),
                max_tokens=requested or 0,
                guided=guided,
                extra=sampling.custom_params or {},
            )
        )
        hashed, class_ = recorder.request_hash(req.rid), recorder.class_id(label)
        session = req.session_id or getattr(req.session, "session_id", None)
        said = {} if requested is None else {"requested_output": requested}
        admission = recorder.admitted(
            request=hashed,
            class_=class_,
            session=recorder.request_hash(session) if session else 0,
            prompt_tokens=len(req.origin_input_ids),
            temperature=temperature,
            top_p=sampling.top_p,
            adapter=recorder.adapter_id(adapter),
            guided=guided,
            content=self._content(req, adapter) if temperature == 0 else 0,
            **said,
        )
        self.running[req.rid] = Running(hashed, class_, admission, self._now())

    def _content(self, req: Any, adapter: str) -> int:
        """Content hash of a greedy request; 0 if the output depends on more than token ids and
        parameters."""
        besides = any(getattr(req, name, None) is not None for name in _BESIDES)
        if not req.origin_input_ids or besides:
            return 0
        shape = [getattr(req.sampling_params, name, None) for name in _SHAPES]
        ordered = [sorted(each) if isinstance(each, set) else each for each in shape]
        reasons = bool(getattr(req, "require_reasoning", False))  # a grammar then waits for it
        return self._recorder.content_hash(req.origin_input_ids, adapter, reasons, *ordered)

    def _adapter(self, lora_id: str | None) -> str:
        """An adapter's name, or its id if the worker has no name."""
        if not lora_id:
            return ""
        manager = getattr(self._scheduler.tp_worker.model_runner, "lora_manager", None)
        known = getattr(manager, "lora_refs", {}).get(lora_id)
        return str(getattr(known, "lora_name", None) or lora_id)

    def scheduled(self, reqs: Iterable[Any]) -> None:
        """Note the begin of prefill."""
        for req in reqs:
            state = self.running.get(req.rid)
            if state is not None and not state.scheduled:
                state.scheduled = self._now()

    def given(self, reqs: Iterable[Any], now: int) -> None:
        """Note the tokens of a batch: first tokens and ends of requests."""
        for req in reqs:
            state = self.running.get(req.rid)
            if state is None:
                continue
            if not state.first_token and req.output_ids:
                state.first_token = now
            if req.finished():
                self.end(req, end_of(req))

    def end(self, req: Any, reason: End) -> None:
        """Write the end of a request; unknown and already ended ones are ignored."""
        state = self.running.pop(req.rid, None)
        if state is None:
            return
        now, first, scheduled = self._now(), state.first_token, state.scheduled
        tokens = list(req.output_ids_through_stop)
        admission = state.admission
        if admission is not None and scheduled:
            admission.cached_tokens = req.cached_tokens
        self._recorder.ended(
            admission,
            output_tokens=len(tokens),
            reason=reason,
            preemptions=state.preemptions,
            queue_ms=(scheduled - state.arrived) / 1e6 if scheduled else NAN,
            prefill_ms=(first - scheduled) / 1e6 if first and scheduled else NAN,
            ttft_ms=(first - state.arrived) / 1e6 if first else NAN,
            decode_ms=(now - first) / 1e6 if first else NAN,
            e2e_ms=(now - state.arrived) / 1e6,
            digest=token_digest(tokens),
        )


def end_of(req: Any) -> End:
    """The end of a request, from SGLang's finish reason; NONE while it runs."""
    reason = req.finished_reason
    if reason is None:
        return End.NONE
    said = reason.to_json()
    if said["type"] != "stop":
        return End.LENGTH if said["type"] == "length" else End.ABORT
    matched, asked_for = said["matched"], req.sampling_params.stop_token_ids or ()
    return End.EOS if isinstance(matched, int) and matched not in asked_for else End.STOP
