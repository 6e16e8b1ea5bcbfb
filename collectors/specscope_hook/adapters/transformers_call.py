"""transformers: the rounds and the request of one call of `generate`.

An assisted call drafts, verifies and accepts. A plain call is target-only, so each of its forward
passes is a round with k = 0. A call belongs to its thread.
"""

from __future__ import annotations

import math
from collections import deque
from enum import Enum
from typing import Any

from specscope_hook.adapters.transformers_requests import Prompt
from specscope_hook.admission import Admission
from specscope_hook.clock import SystemClock
from specscope_hook.columns import End
from specscope_hook.digest import token_digest
from specscope_hook.errors import NotSupported
from specscope_hook.recorder import Recorder
from specscope_hook.timers import Part, Step, Timer

NAN = math.nan
K_MOST = 254  # emitted is one more, and fits a byte


class _Phase(Enum):
    """The phase of a round, which tells verifying forward passes from others."""

    IDLE = 0  # also while candidates are made, with the same model or another
    READY = 1  # the next forward pass is the one
    VERIFYING = 2
    SAMPLING = 3


class Call:
    """A running call; its callers catch all exceptions."""

    def __init__(
        self,
        recorder: Recorder,
        timer: Timer,
        admission: Admission,
        prompt: Prompt,
        arrived: int,
    ) -> None:
        """timer: the thread's timer. arrived: time at which `generate` was entered, monotonic
        ns."""
        self._recorder = recorder
        self._timer = timer
        self._admission = admission
        self._prompt = prompt
        self._arrived = arrived
        self._now, self._unix = SystemClock.monotonic_ns, SystemClock.unix_ns
        self._last = self._now()
        self._first_token = 0
        self._phase = _Phase.IDLE
        self.given = prompt.tokens - prompt.past  # token ids that the output begins with
        self._context = prompt.tokens
        self._k = 0
        self._candidates: Any = None
        self._made = 0  # tokens that its rounds have given out
        self._tag = 0
        self._waiting: deque[tuple[int, dict[str, Any]]] = deque()
        self._steps: dict[int, Step] = {}
        timer.seal(0)  # whatever a call that failed has left open belongs to nobody
        timer.resolved()

    # --- what an assisted call does ------------------------------------------------------

    def round_begins(self) -> None:
        """A round begins: candidates are requested."""
        self._write(keep=0)
        self._phase = _Phase.IDLE
        self._timer.open(Part.DRAFT)

    def drafted(self, result: Any, input_ids: Any) -> None:
        """The candidates are known: the first item of `result` is the text so far, followed by
        them.

        Raises NotSupported for more candidates than a record can hold.
        """
        self._timer.close(Part.DRAFT)
        candidates, length = result[0], int(input_ids.shape[1])
        self._context = length + self._prompt.past
        self._k = int(candidates.shape[1]) - length
        if self._k > K_MOST:
            raise NotSupported(f"a draft of {self._k} tokens; a record holds {K_MOST}")
        self._candidates = candidates[:, length:]
        self._phase = _Phase.READY

    def round_ends(self, matches: Any) -> None:
        """The round ends with `matches` accepted candidates and one more token."""
        self._timer.close(Part.SAMPLE)
        matches = int(matches)
        self._phase = _Phase.IDLE
        self._seal(self._k, matches, matches + 1)

    # --- what a plain call does ----------------------------------------------------------

    def prefill_begins(self) -> None:
        """Prefill begins; chunks make several forward passes."""
        self._timer.open(Part.VERIFY)

    def prefill_ends(self) -> None:
        """The first token's logits are known."""
        self._timer.close(Part.VERIFY)
        self._timer.open(Part.SAMPLE)
        self._phase = _Phase.SAMPLING

    def step_begins(self) -> None:
        """The inputs of a forward pass are requested; in a plain call a round ends here."""
        if self._phase is _Phase.SAMPLING and self._candidates is None:
            self._end_plain_round()
            self._write(keep=1)
            self._phase = _Phase.READY

    def _end_plain_round(self) -> None:
        self._timer.close(Part.SAMPLE)
        self._seal(0, 0, 1)
        self._context += 1

    # --- in both -------------------------------------------------------------------------

    def forward_begins(self) -> None:
        """A forward pass of the model begins; not every one belongs to a round."""
        if self._phase is _Phase.READY:
            self._phase = _Phase.VERIFYING
            self._timer.open(Part.VERIFY)

    def forward_ends(self) -> None:
        """The forward pass has ended on the host."""
        if self._phase is _Phase.VERIFYING:
            self._phase = _Phase.SAMPLING
            self._timer.close(Part.VERIFY)
            self._timer.open(Part.SAMPLE)

    def end(self, tokens: list[int] | None) -> None:
        """The call returns these tokens; None if it raised."""
        reason = End.ABORT
        if tokens is not None:
            if self._phase is _Phase.SAMPLING and self._candidates is None:
                self._end_plain_round()
            reason = self._reason(tokens)
            self._correct(tokens, reason)
        if self._waiting:
            self._waiting[-1][1]["ends"] = [int(reason)]
        self._write(keep=0, wait=False)
        now, first = self._now(), self._first_token
        self._recorder.ended(
            self._admission,
            output_tokens=self._made if tokens is None else len(tokens),
            reason=reason,
            queue_ms=0.0,
            ttft_ms=(first - self._arrived) / 1e6 if first else NAN,
            decode_ms=(self._last - first) / 1e6 if first else NAN,
            e2e_ms=(now - self._arrived) / 1e6,
            digest=0 if tokens is None else token_digest(tokens),
        )

    def _reason(self, tokens: list[int]) -> End:
        if tokens and tokens[-1] in self._prompt.eos:
            return End.EOS
        limit = self._prompt.limit
        return End.LENGTH if limit is not None and len(tokens) >= limit else End.STOP

    def _correct(self, tokens: list[int], reason: End) -> None:
        """Correct the last round from the whole text."""
        if not self._waiting:
            return
        values = self._waiting[-1][1]
        if self._candidates is not None:
            made, k = values["emitted"][0], values["k"][0]
            # A text that ends within the accepted candidates is cropped there, and transformers
            # then counts its last token as its own.
            cropped = reason is not End.STOP and made <= min(k, len(tokens))
            if cropped and int(self._candidates[0, made - 1]) == tokens[-1]:
                values["accepted"] = [made]
        elif self._made == len(tokens) + 1 and len(self._waiting) > 1:
            # Where the end is looked for one step late, the last step was for nobody.
            _, surplus = self._waiting.pop()
            self._made -= 1
            before = self._waiting[-1][1]
            before["wall_us"] += surplus["wall_us"]
            before["padded_tokens"] = 1

    def _seal(self, k: int, accepted: int, emitted: int) -> None:
        now, first = self._now(), not self._first_token
        began, self._last = self._last, now
        self._first_token = self._first_token or now
        self._made += emitted
        self._tag += 1
        self._timer.seal(self._tag)
        new_prompt = self._prompt.tokens - self._prompt.cached
        values = {
            "started_at": self._unix() - (now - began),
            "wall_us": (now - began) / 1e3,
            "prefill_tokens": max(0, new_prompt - 1) if first else 0,
            "prefill_us": NAN if first else 0.0,
            "requests": [self._admission.request],
            "classes": [self._admission.class_],
            "contexts": [self._context - 1],
            "k": [k],
            "accepted": [accepted],
            "emitted": [emitted],
            "ends": [0],
        }
        self._waiting.append((self._tag, values))

    def _write(self, keep: int, wait: bool = True) -> None:
        """Write the rounds whose times are known, all but the last `keep`.

        wait: False writes the others too, without their times.
        """
        for known in self._timer.resolved():
            self._steps[known.tag] = known
        while len(self._waiting) > keep:
            tag, values = self._waiting[0]
            if wait and tag not in self._steps:
                return
            self._waiting.popleft()
            values |= _parts(self._steps.pop(tag, None), values["wall_us"])
            self._recorder.round(timing_source=self._timer.source, **values)


def _parts(step: Step | None, wall_us: float) -> dict[str, float]:
    """A round's parts; wall time outside all parts is idle."""
    if step is None or math.isnan(step.verify_us):
        return {}
    draft = 0.0 if math.isnan(step.draft_us) else step.draft_us  # plain calls draft nothing
    idle = max(0.0, wall_us - draft - step.verify_us - step.sample_us)
    return {
        "draft_us": draft,
        "verify_us": step.verify_us,
        "sample_us": step.sample_us,
        "idle_us": idle,
    }
