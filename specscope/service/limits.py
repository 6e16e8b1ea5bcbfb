"""Limits for one caller: rate of requests and rate of log lines."""

from __future__ import annotations

import asyncio
import logging
import resource
import time

MAX_STREAMS = 4096  # of one service; a stream is a sidecar
MAX_STREAMS_OF_TENANT = MAX_STREAMS // 2  # of one token of a tenant, so that others have a place
IDLE_S = 60.0  # that a connection may stay without a stream; it takes a place all the same
MAX_SOURCES = 1024  # of one Hello; a sidecar has one for each ring and each spooled boot
MAX_NAME = 256  # characters of a replica's or a boot's name
MOST_NUMBER = 1 << 32  # of a batch: two a second make as many in 60 years
MOST_SEQ = 1 << 63  # of a record
HELLO_S = 10.0  # from the stream's opening to its Hello
MESSAGES_S = 500  # a second, of one stream on average: a sidecar sends some two
MESSAGES_BURST = 2000  # at once, after an outage
OWN_DESCRIPTORS = 512  # of the store's parts, queries and HTTP connections
MAX_UNHEARD = 1024  # answers that a sidecar has not read; it waits for 16 at most
UNHEARD_S = 0.05  # between two looks at whether it reads again
MAX_HTTP = 128  # connections to the read endpoint
HEADER_S = 10.0  # from a connection's opening, or the answer before, to a whole request
ANSWER_S = 120.0  # for an answer to be read
MAX_UNREAD = 256 << 20  # bytes of answers that clients have not read yet
BODY_S = 30.0  # for the body of one


class Pace:
    """A rate limit with a burst; further calls wait."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, time.monotonic()

    async def turn(self) -> None:
        """Wait until it is the caller's turn."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - 1
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / self._rate)


class Sparing:
    """Log each kind of warning at most once a minute, with its count."""

    def __init__(self, log: logging.Logger, interval_s: float = 60.0) -> None:
        self._log, self._interval_s = log, interval_s
        self._said_at: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def warn(self, what: str, text: str) -> None:
        """what: kind of warning, one of few; text: one line"""
        now = time.monotonic()
        if now - self._said_at.get(what, -self._interval_s) < self._interval_s:
            self._held_back[what] = self._held_back.get(what, 0) + 1
            return
        self._said_at[what] = now
        more = self._held_back.pop(what, 0)
        said = " ".join(text.split())[:300]
        self._log.warning("%s%s", said, f" (and {more} more like it)" if more else "")


def descriptors_left() -> int:
    """Number of file descriptors for sidecars, after a reserve for the store and readers."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, soft - OWN_DESCRIPTORS)


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the system's maximum; each sidecar needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
