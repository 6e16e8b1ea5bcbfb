"""A live `/metrics` endpoint, polled for a while."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from io import BytesIO

from specscope.analyze.collect import Collector
from specscope.analyze.result import Analysis
from specscope.errors import InputError
from specscope.readers.prometheus import sample
from specscope.readers.records import Record, Scrape
from specscope.readers.source import from_stream
from specscope.readers.trtllm_json import TrtllmJson

TIMEOUT_S = 10.0
LARGEST_ANSWER = 1 << 26


def watch(
    url: str, seconds: float = 60.0, every: float = 5.0, sleep: Callable[[float], None] = time.sleep
) -> Analysis:
    """Poll a URL and analyse what changed. Raises InputError where it cannot be read as metrics.

    TensorRT-LLM answers JSON and empties its queue at every read, so every answer is kept.
    """
    collector = Collector()
    answers = _answers(url, seconds, every, sleep)
    at, first = next(answers)
    if first.lstrip()[:1] in (b"[", b"{"):
        bodies = [first, *(body for _, body in answers)]
        iterations = [item for body in bodies for item in _iterations(url, body)]
        source = from_stream(url, BytesIO(json.dumps(iterations).encode()))
        reader = TrtllmJson()
        collector.take(url, reader.format, reader.read(source))
    else:
        collector.take(url, "prometheus", _scrapes(url, at, first, answers))
    return collector.result()


def _scrapes(
    url: str, at: float, first: bytes, answers: Iterator[tuple[float, bytes]]
) -> Iterator[Record]:
    for moment, body in [(at, first), *answers]:
        samples = dict(
            parsed
            for line in body.decode("utf-8", "replace").splitlines()
            if not line.startswith("#") and (parsed := sample(line.strip()))
        )
        yield Scrape(url, samples, moment)


def _answers(
    url: str, seconds: float, every: float, sleep: Callable[[float], None]
) -> Iterator[tuple[float, bytes]]:
    start = time.monotonic()
    polls = max(1, round(seconds / every))
    for poll in range(polls + 1):
        wait = start + poll * every - time.monotonic()
        if poll and wait > 0:
            sleep(wait)
        yield time.monotonic(), _get(url)


def _get(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "text/plain, application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            body: bytes = response.read(LARGEST_ANSWER)
            return body
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise InputError(f"{url}: {getattr(error, 'reason', None) or error}") from error


def _iterations(url: str, body: bytes) -> list[object]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise InputError(f"{url}: neither Prometheus text nor JSON") from error
    return found if isinstance(found, list) else [found]
