"""A running request in the hook, and its record."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specscope_hook.payload import REQUEST

NAN = math.nan


@dataclass(slots=True)
class Admission:
    """A running request's admission, for a complete record at its end."""

    request: int
    session: int
    admitted_at: int
    policy: int
    pair: int
    prompt_tokens: int
    cached_tokens: int
    requested_output: int
    temperature: float
    top_p: float
    class_: int
    adapter: int
    arm: int
    guided: int
    content: int = 0


def packed(
    a: Admission,
    *,
    ended_at: int = 0,
    digest: int = 0,
    last_pair: int = 0,
    output_tokens: int = 0,
    preemptions: int = 0,
    queue_ms: float = NAN,
    prefill_ms: float = NAN,
    ttft_ms: float = NAN,
    decode_ms: float = NAN,
    e2e_ms: float = NAN,
    reason: int = 0,
) -> bytes:
    """The payload of a request's record, in the order of ring_records.RingRequest.

    A test compares the two orders. Without further arguments, it is the record of the admission.
    """
    return REQUEST.pack(
        a.request,
        a.session,
        a.admitted_at,
        ended_at,
        digest,
        a.content,
        a.policy,
        a.pair,
        last_pair,
        a.prompt_tokens,
        a.cached_tokens,
        a.requested_output,
        output_tokens,
        preemptions,
        a.temperature,
        a.top_p,
        queue_ms,
        prefill_ms,
        ttft_ms,
        decode_ms,
        e2e_ms,
        a.class_,
        a.adapter,
        a.arm,
        a.guided,
        reason,
    )
