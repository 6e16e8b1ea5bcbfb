"""Hugging Face transformers: assisted generation and prompt lookup, one sequence at a time.

Wraps, on one model's instance, `_get_candidate_generator` and `generate`; on each candidate
generator, the two methods that a round passes through; and listens to the model's forward
pass. Calls of `generate` without an assistant, and with beams, pass through unrecorded.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from specscope_hook.admission import Admission
from specscope_hook.boot import new_boot
from specscope_hook.clock import SystemClock
from specscope_hook.columns import End
from specscope_hook.digest import token_digest
from specscope_hook.errors import NotSupported
from specscope_hook.recorder import Recorder
from specscope_hook.records import Boot
from specscope_hook.settings import HookSettings
from specscope_hook.timers import CudaTimer, HostTimer, Part, Step, Timer

NAN = math.nan
_SHAPES = (
    "max_length", "min_length", "max_new_tokens", "eos_token_id", "repetition_penalty",
    "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "stop_strings",
)  # fmt: skip
"""Parameters of a generation that shape a greedy output."""


def transformers_boot(model: Any, settings: HookSettings, **known: Any) -> Boot:
    """The Boot record of a model that generates here. known: more fields of records.Boot."""
    import transformers

    weights = list(model.parameters())
    count = sum(weight.numel() for weight in weights)
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    values = {
        "engine": "transformers",
        "engine_version": transformers.__version__,
        "target": str(model.config.name_or_path or type(model).__name__),
        "parameters": count,
        "bytes_per_weight": size / count if count else None,
        "layers": getattr(model.config, "num_hidden_layers", None),
    }
    return new_boot(settings, **values | known)


class TransformersHook:
    """Records one model's generation. `label` and `request_id` may be set before each call."""

    def __init__(self, model: Any, recorder: Recorder) -> None:
        """Wrap a model. Raises NotSupported where it has not what we wrap."""
        for name in ("_get_candidate_generator", "generate", "register_forward_hook"):
            if not callable(getattr(model, name, None)):
                raise NotSupported(f"{type(model).__name__} has no {name}")
        parameters = inspect.signature(model._get_candidate_generator).parameters
        if not {"generation_config", "input_ids"} <= set(parameters):
            raise NotSupported("this transformers makes its candidates in another way")
        self.label = ""
        self.request_id = ""
        self._model = model
        self._recorder = recorder
        self._numbers = itertools.count(1)
        self._timer = _timer_for(model)
        self._now, self._unix = SystemClock.monotonic_ns, SystemClock.unix_ns
        self._call: _Call | None = None
        self._waiting: deque[dict[str, Any]] = deque()
        self._steps: dict[int, Step] = {}
        self._tag = 0
        self._generator, self._generate = model._get_candidate_generator, model.generate
        model._get_candidate_generator = self._make_generator
        model.generate = self._around_generate
        self._listeners = (
            model.register_forward_pre_hook(lambda *_: self._do(self._forward_begins)),
            model.register_forward_hook(lambda *_: self._do(self._forward_ends)),
        )

    def remove(self) -> None:
        """Leave the model as it was."""
        del self._model._get_candidate_generator, self._model.generate
        for listener in self._listeners:
            listener.remove()

    def _do(self, call: Callable[..., None], *args: Any) -> None:
        if not self._recorder.on:
            return
        try:
            call(*args)
        except Exception as error:
            self._recorder.detach(f"transformers: {error!r}")

    # --- a call of generate --------------------------------------------------------------

    def _around_generate(self, *args: Any, **kwargs: Any) -> Any:
        self._call = None
        arrived = self._now()
        try:
            result = self._generate(*args, **kwargs)
        except BaseException:
            self._do(self._end_call, None, arrived)
            raise
        self._do(self._end_call, result, arrived)
        return result

    def _make_generator(self, *args: Any, **kwargs: Any) -> Any:
        made = self._generator(*args, **kwargs)
        self._do(self._begin_call, made, args, kwargs)
        return made

    def _begin_call(self, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        bound = inspect.signature(self._generator).bind(*args, **kwargs).arguments
        config, prompt = bound["generation_config"], int(bound["input_ids"].shape[1])
        recorder = self._recorder
        id_ = self.request_id or f"generate-{next(self._numbers)}"
        class_ = recorder.class_id(self.label)
        sampled = bool(config.do_sample)
        admission = recorder.admitted(
            request=recorder.request_hash(id_),
            class_=class_,
            prompt_tokens=prompt,
            cached_tokens=0,
            requested_output=max(0, config.max_length - prompt) if config.max_length else 0,
            temperature=float(config.temperature or 0.0) if sampled else 0.0,
            top_p=float(config.top_p or 1.0) if sampled else 1.0,
            content=0 if sampled else self._content(bound["input_ids"], config),
        )
        self._call = _Call(admission, class_, prompt, self._now(), _eos(config))
        get_candidates, update = made.get_candidates, made.update_candidate_strategy

        def timed_candidates(input_ids: Any, *more: Any, **named: Any) -> Any:
            self._do(self._round_begins)
            result = get_candidates(input_ids, *more, **named)
            self._do(self._drafted, input_ids, result)
            return result

        def timed_update(input_ids: Any, scores: Any, num_matches: Any) -> Any:
            self._do(self._round_ends, int(num_matches))
            return update(input_ids, scores, num_matches)

        made.get_candidates, made.update_candidate_strategy = timed_candidates, timed_update

    def _content(self, input_ids: Any, config: Any) -> int:
        shape = [repr(getattr(config, name, None)) for name in _SHAPES]
        return self._recorder.content_hash(input_ids[0].tolist(), *shape)

    def _end_call(self, result: Any, arrived: int) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        now = self._now()
        tokens: list[int] = []
        reason = End.ABORT
        if result is not None:
            sequence = getattr(result, "sequences", result)[0]
            tokens = sequence[call.prompt :].tolist()
            limit = call.admission.requested_output if call.admission else 0
            ended_itself = bool(tokens) and tokens[-1] in call.eos
            full = len(tokens) >= limit
            reason = End.EOS if ended_itself else (End.LENGTH if full else End.STOP)
        if self._waiting:
            self._waiting[-1]["ends"] = [int(reason)]
        self._write(wait=False)
        self._recorder.ended(
            call.admission,
            output_tokens=len(tokens),
            reason=reason,
            queue_ms=0.0,
            prefill_ms=NAN,
            ttft_ms=(call.first - arrived) / 1e6 if call.first else NAN,
            decode_ms=(now - call.first) / 1e6 if call.first else NAN,
            e2e_ms=(now - arrived) / 1e6,
            digest=token_digest(tokens),
        )

    # --- a round -------------------------------------------------------------------------

    def _round_begins(self) -> None:
        self._write(wait=True)
        if self._call is not None:
            self._call.verifying = False
        self._timer.open(Part.DRAFT)

    def _drafted(self, input_ids: Any, result: Any) -> None:
        self._timer.close(Part.DRAFT)
        call = self._call
        if call is None:
            return
        call.context = int(input_ids.shape[1])
        call.k = int(result[0].shape[1]) - call.context
        call.verifying = True

    def _forward_begins(self) -> None:
        if self._call is not None and self._call.verifying:
            self._timer.open(Part.VERIFY)

    def _forward_ends(self) -> None:
        if self._call is not None and self._call.verifying:
            self._timer.close(Part.VERIFY)
            self._timer.open(Part.SAMPLE)

    def _round_ends(self, matches: int) -> None:
        self._timer.close(Part.SAMPLE)
        call = self._call
        if call is None or call.admission is None:
            return
        call.verifying = False
        now = self._now()
        self._tag += 1
        self._timer.seal(self._tag)
        first = not call.first
        began, call.last = call.last, now
        call.first = call.first or now
        self._waiting.append(
            {
                "tag": self._tag,
                "started_at": self._unix() - (now - began),
                "wall_us": (now - began) / 1e3,
                "prefill_tokens": call.prompt - 1 if first else 0,
                "prefill_us": NAN if first else 0.0,
                "requests": [call.admission.request],
                "classes": [call.class_],
                "contexts": [call.context - 1],
                "k": [call.k],
                "accepted": [matches],
                "emitted": [matches + 1],
                "ends": [0],
            }
        )

    def _write(self, wait: bool) -> None:
        """Write the rounds whose times are known; without waiting for times, all."""
        for known in self._timer.resolved():
            self._steps[known.tag] = known
        while self._waiting:
            tag = self._waiting[0]["tag"]
            if wait and tag not in self._steps:
                return
            values = self._waiting.popleft()
            del values["tag"]
            step = self._steps.pop(tag, None)
            draft = step.draft_us if step else NAN
            verify = step.verify_us if step else NAN
            sample = step.sample_us if step else NAN
            self._recorder.round(
                draft_us=draft,
                verify_us=verify,
                sample_us=sample,
                idle_us=max(0.0, values["wall_us"] - draft - verify - sample) if step else NAN,
                timing_source=self._timer.source,
                **values,
            )


class _Call:
    """What is kept of a call of generate while it runs."""

    def __init__(
        self, admission: Admission | None, class_: int, prompt: int, began: int, eos: set[int]
    ) -> None:
        self.admission = admission
        self.class_ = class_
        self.prompt = prompt
        self.last = began
        self.first = 0
        self.eos = eos
        self.context = prompt
        self.k = 0
        self.verifying = False


def _timer_for(model: Any) -> Timer:
    if model.device.type != "cuda":
        return HostTimer()
    import torch

    return CudaTimer(torch)


def _eos(config: Any) -> set[int]:
    ids = config.eos_token_id
    return set() if ids is None else set(ids if isinstance(ids, list) else [ids])
