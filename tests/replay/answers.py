"""Answers of two simulated endpoints, with a known truth."""

from __future__ import annotations

import hashlib
import time

import numpy as np

from specscope.evaluate.statistics.quantiles import bin_of
from specscope.replay.client import Outcome
from specscope.replay.judge import judge
from specscope.replay.result import ReplayResult
from specscope.replay.trace import Asked, Trace


def trace(count=120, classes=("sql",), span_s=100.0, sessions=None, **content):
    content = content or {"prompt": "SELECT 1"}
    requests = tuple(
        Asked(
            number=number,
            offset_s=span_s * number / count,
            class_=classes[number % len(classes)],
            session=f"s{number % sessions}" if sessions else "",
            content=content,
            prompt_tokens=100,
            max_tokens=100,
        )
        for number in range(count)
    )
    return Trace(requests, hashlib.sha256(b"trace").hexdigest())


def answers(
    asked, parts=10, gain=None, seed=0, drift=0.1, request_sd=0.3, own_sd=0.1, tokens=80, ttft=50.0
):
    """Both sides' outcomes: time per token 10 ms on a, 10 / gain[class] on b.

    drift: sd of the log slowness of one part on one side, which its requests share; request_sd:
    of a request, on both sides alike; own_sd: of a request on one side.
    """
    random = np.random.default_rng(seed)
    gain = gain or {}
    slow = np.exp(random.normal(0, drift, (parts, 2)))
    found = []
    for place, one in enumerate(asked.requests):
        part = place * parts // len(asked.requests)
        length = int(random.integers(tokens // 2, tokens * 2))
        shared = np.exp(random.normal(0, request_sd))
        for index, side in enumerate("ab"):
            each = 10.0 * shared * slow[part, index] * np.exp(random.normal(0, own_sd))
            each /= gain.get(one.class_, 1.0) if side == "b" else 1.0
            decode = each * (length - 1)
            began = 0.1 * (place % 12)
            found.append(
                Outcome(
                    number=one.number,
                    part=part,
                    side=side,
                    began_s=began,
                    ended_s=began + (ttft + decode) / 1e3,
                    ttft_ms=ttft,
                    decode_ms=decode,
                    output_tokens=length,
                    prompt_tokens=100,
                    gaps={bin_of(each): length - 1},
                    digest=f"text {one.number}",
                )
            )
    return found


def a_result(gain):
    """k4 against k0 on sql, made now."""
    asked = trace(160)
    made = answers(asked, gain={"sql": gain}, drift=0.02, own_sd=0.02)
    judged = judge(asked, made, ("k0", "k4"))
    urls = ("http://a", "http://b")
    return ReplayResult(time.time_ns(), "", ("k0", "k4"), urls, "00", 160, {}, judged)
