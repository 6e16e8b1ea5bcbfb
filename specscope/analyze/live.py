"""Poll a live `/metrics` endpoint."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from io import BytesIO

from specscope.analyze.collect import Collector
from specscope.analyze.result import Analysis
from specscope.errors import InputError
from specscope.readers.records import Finding, Record, Scrape
from specscope.readers.results.trtllm_json import TrtllmJson
from specscope.readers.scrapes.prometheus import sample
from specscope.readers.source import from_stream

TIMEOUT_S = 10.0
LARGEST_ANSWER = 1 << 26
ENGINES = (
    "vllm:",
    "sglang:",
    "llamacpp:",
    "trtllm_",
    "tgi_",
    "lmdeploy:",
    "specscope_engine_",
    "DCGM_FI_",
)


def watch(
    url: str, seconds: float = 60.0, every: float = 5.0, sleep: Callable[[float], None] = time.sleep
) -> Analysis:
    """Poll a URL and analyse the changes.

    A failed poll after the first is dropped and counted. TensorRT-LLM returns JSON and empties its
    queue at every read, so every answer is kept. Raises InputError if the URL does not answer with
    metrics of a known engine.
    """
    polls = Polls(url, seconds, every, sleep)
    at, first = polls.first()
    collector = Collector()
    if first.lstrip()[:1] in (b"[", b"{"):
        bodies = [first, *(body for _, body in polls.rest())]
        iterations = [item for body in bodies for item in _iterations(url, body)]
        source = from_stream(url, BytesIO(json.dumps(iterations).encode()))
        reader = TrtllmJson()
        collector.take(url, reader.format, reader.read(source))
    else:
        scrape = _scrape(url, at, first)
        if not any(name.startswith(ENGINES) for name, _ in scrape.samples):
            raise InputError(f"{url}: answers, but with no metric of a known engine")
        collector.take(url, "prometheus", _scrapes(url, scrape, polls))
    return collector.result()


class Polls:
    """Answers of one URL at equal intervals."""

    def __init__(
        self, url: str, seconds: float, every: float, sleep: Callable[[float], None]
    ) -> None:
        self._url, self._every, self._sleep = url, every, sleep
        self._number = max(1, round(seconds / every))
        self._start = 0.0
        self.failed = 0

    def first(self) -> tuple[float, bytes]:
        """(monotonic time in s, body). Raises InputError if there is no answer."""
        body = self._found()
        self._start = time.monotonic()
        return self._start, body

    def _found(self) -> bytes:
        """The body of the URL, or of its `/metrics` if the URL is a server's base address."""
        bare = not urllib.parse.urlsplit(self._url).path.strip("/")
        try:
            body = _get(self._url)
        except InputError:
            if not bare:
                raise
            body = b""
        if not bare or body.lstrip()[:1] in (b"[", b"{") or _speaks(body):
            return body
        metrics = self._url.rstrip("/") + "/metrics"
        body = _get(metrics)
        self._url = metrics
        return body

    def rest(self) -> Iterator[tuple[float, bytes]]:
        """The following answers, each at its absolute time; failures are counted."""
        for poll in range(1, self._number + 1):
            wait = self._start + poll * self._every - time.monotonic()
            if wait > 0:
                self._sleep(wait)
            try:
                body = _get(self._url)
            except InputError:
                self.failed += 1
                continue
            yield time.monotonic(), body


def _scrapes(url: str, first: Scrape, polls: Polls) -> Iterator[Record]:
    yield first
    for at, body in polls.rest():
        yield _scrape(url, at, body)
    if polls.failed:
        yield Finding("UNREADABLE", f"{polls.failed} polls failed and are left out")


def _scrape(url: str, at: float, body: bytes) -> Scrape:
    lines = body.decode("utf-8", "replace").splitlines()
    parsed = (sample(line.strip()) for line in lines if not line.startswith("#"))
    return Scrape(url, dict(found for found in parsed if found), at)


def _speaks(body: bytes) -> bool:
    return any(line.startswith(ENGINES) for line in body.decode("utf-8", "replace").splitlines())


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
