"""vLLM: its requests, from the queue to their end."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from specscope_hook.admission import Admission
from specscope_hook.clock import SystemClock
from specscope_hook.columns import End
from specscope_hook.digest import token_digest
from specscope_hook.recorder import Recorder
from specscope_hook.rules import ClassRules, Facts

NAN = math.nan
_SHAPES = (
    "min_tokens", "stop", "stop_token_ids", "ignore_eos", "include_stop_str_in_output",
    "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias", "bad_words",
    "allowed_token_ids", "structured_outputs",
)  # fmt: skip
"""Sampling parameters that shape a greedy output."""
_shape = attrgetter(*_SHAPES)
_AROUND_CLIENT_ID = re.compile(
    r"(?:\d+_)?"  # the sample's number, for n > 1
    r"(?:cmpl-(?P<completion>.+?)-\d+|(?:chatcmpl-|resp_|generate-tokens-)?(?P<other>.+?))"
    r"(?:-[0-9a-f]{8})?"  # vLLM's own ending, which makes it unique
)


@dataclass(slots=True)
class Running:
    """A request between its admission and its end; times in ns, monotonic."""

    id: str
    request: Any
    hashed: int
    class_: int
    label: str
    admission: Admission | None
    arrived: int
    output: int
    held: int
    """Tokens of its prompt and of what it was given, as far as steps have been read."""
    scheduled: int = 0
    first_token: int = 0


class Requests:
    """The requests of one scheduler; its callers catch all exceptions."""

    def __init__(self, recorder: Recorder, rules: ClassRules, model: str) -> None:
        self._recorder = recorder
        self._rules = rules
        self._model = model
        self._now, self._unix = SystemClock.monotonic_ns, SystemClock.unix_ns
        self.running: dict[str, Running] = {}
        self.ended = 0
        """How many have ended."""
        self.prompts = 0
        """How many are being worked on and have no token yet."""

    def admit(self, request: Any, now: int, unix: int) -> None:
        """Admit a request that joined the queue at this time (ns, monotonic and since 1970).

        Pooling requests emit no tokens and are ignored.
        """
        id_ = request.request_id
        if id_ in self.running or request.sampling_params is None:
            return
        sampling, recorder = request.sampling_params, self._recorder
        adapter = request.lora_request.lora_name if request.lora_request else ""
        guided = request.structured_output_request is not None
        extra = sampling.extra_args or {}
        if self._rules.none:
            label = self._rules.own(extra)
        else:
            label = self._rules.label(
                Facts(
                    request_id=id_,
                    client_id=client_id(id_),
                    adapter=adapter,
                    model=self._model,
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    prompt_tokens=request.num_prompt_tokens,
                    max_tokens=request.max_tokens,
                    guided=guided,
                    extra=extra,
                )
            )
        hashed, class_ = recorder.request_hash(id_), recorder.class_id(label)
        admission = recorder.admitted(
            request=hashed,
            class_=class_,
            session=recorder.request_hash(request.session_id) if request.session_id else 0,
            prompt_tokens=request.num_prompt_tokens,
            admitted_at=unix,
            requested_output=request.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            adapter=recorder.adapter_id(adapter),
            guided=guided,
            content=self._content(request, adapter),
        )
        if not recorder.on:
            return
        # The front end stamped the arrival on the wall's clock, in another process.
        arrived = now - max(0, unix - int(request.arrival_time * 1e9))
        self.running[id_] = Running(
            id_,
            request,
            hashed,
            class_,
            label,
            admission,
            arrived,
            request.max_tokens,
            request.num_prompt_tokens,
        )

    def _content(self, request: Any, adapter: str) -> int:
        """Content hash of a greedy request; 0 for others, and for prompts with more than token
        ids."""
        prompt = getattr(request, "prompt_token_ids", None)
        sampling = request.sampling_params
        if not prompt or sampling.temperature > 0 or getattr(request, "mm_features", None):
            return 0
        try:
            shape = _shape(sampling)
        except AttributeError:  # another version's
            shape = tuple(getattr(sampling, name, None) for name in _SHAPES)
        return self._recorder.content_hash(prompt, adapter, request.max_tokens, shape)

    def scheduled(self, ids: Iterable[str], now: int) -> None:
        """Note the begin of prefill (monotonic ns)."""
        for id_ in ids:
            state = self.running.get(id_)
            if state is not None and not state.scheduled:
                state.scheduled = now
                self.prompts += 1

    def given(self, outputs: Iterable[Any], now: int) -> None:
        """Note outputs that ended a prefill or a request at this time (monotonic ns)."""
        for each in outputs:
            state = self.running.get(each.request_id)
            if state is None:
                continue
            if each.prefill_stats is not None and state.admission is not None:
                state.admission.cached_tokens = each.prefill_stats.num_cached_tokens
            if each.new_token_ids and not state.first_token:
                state.first_token = now
                self.prompts -= state.scheduled > 0
            if each.finish_reason is not None:
                self._end(state, end_of(each), now)

    def abort(self, requests: Iterable[Any] | None, now: int) -> None:
        """Note requests that were aborted at this time (monotonic ns)."""
        for request in requests or ():
            state = self.running.get(request.request_id)
            if state is not None:
                self._end(state, End.ABORT, now)

    def forget(self) -> None:
        """Keep nothing of vLLM's."""
        self.running.clear()

    def _end(self, state: Running, reason: End, now: int) -> None:
        del self.running[state.id]
        self.ended += 1
        if reason == End.ABORT and getattr(state.request.sampling_params, "stop", None):
            reason = End.STOP_OR_ABORT  # the front end finds stop strings, and aborts
        first, scheduled = state.first_token, state.scheduled
        self.prompts -= scheduled > 0 and not first
        tokens = list(state.request.output_token_ids)
        self._recorder.ended(
            state.admission,
            output_tokens=len(tokens),
            reason=reason,
            ended_at=self._unix() - self._now() + now,
            preemptions=state.request.num_preemptions,
            queue_ms=(scheduled - state.arrived) / 1e6 if scheduled else NAN,
            prefill_ms=(first - scheduled) / 1e6 if first and scheduled else NAN,
            ttft_ms=(first - state.arrived) / 1e6 if first else NAN,
            decode_ms=(now - first) / 1e6 if first else NAN,
            e2e_ms=(now - state.arrived) / 1e6,
            digest=token_digest(tokens),
            at_once=False,
        )


def client_id(id_: str) -> str:
    """Return the part of a request's id that the client chose (`X-Request-Id`).

    vLLM's front end adds the route before it and a unique ending after it. On /v1/completions the
    prompt's number comes between id and ending, and for n > 1 the sample's number comes first:
    `0_cmpl-sql-7-0-1f2e3d4c` contains `sql-7`.
    """
    match = _AROUND_CLIENT_ID.fullmatch(id_)
    return (match["completion"] or match["other"]) if match else id_


def end_of(output: Any) -> End:
    """vLLM's FinishReason, by number: stop, length, abort, error, repetition."""
    reason = int(output.finish_reason)
    if reason == 0:
        return End.EOS if output.stop_reason is None else End.STOP
    return {1: End.LENGTH, 4: End.STOP}.get(reason, End.ABORT)
