"""The source for a vLLM server without the hook: it reads the server's /metrics page.

The source reads the page every ten seconds. Each reading adds one row per
name in FIELDS to the store's table `device`, with the length of the interval. The value of a
counter is its increase. These are sums over all requests, without
rounds. So no verdict uses them; they show acceptance and output. The engines of one server are
added. With `#1` after the address, only engine 1 is followed.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http.client import HTTPException
from typing import Any, NamedTuple

from specscope_agent.source import Source
from specscope_agent.sources.interface import Harvest, Row
from specscope_agent.sources.sums import INTERVAL_NS, Sum, sum_rows
from specscope_hook.boot import new_boot
from specscope_hook.layout import FIRST_SEQ
from specscope_hook.ring import Cursor
from specscope_hook.settings import HookSettings

log = logging.getLogger("specscope.agent")

TIMEOUT_S = 2.0
MOST_BYTES = 16 << 20  # of one page
POSITIONS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


class Field(NamedTuple):
    """The source of one field of a row."""

    series: str
    unit: str
    gauge: bool = False


FIELDS = {
    "engine_drafts": Field("vllm:spec_decode_num_drafts_total", "request-rounds"),
    "engine_proposed": Field("vllm:spec_decode_num_draft_tokens_total", "tokens"),
    "engine_accepted": Field("vllm:spec_decode_num_accepted_tokens_total", "tokens"),
    "engine_request_rounds": Field("vllm:inter_token_latency_seconds_count", "request-rounds"),
    "engine_generation_tokens": Field("vllm:generation_tokens_total", "tokens"),
    "engine_prompt_tokens": Field("vllm:prompt_tokens_total", "tokens"),
    "engine_preemptions": Field("vllm:num_preemptions_total", "requests"),
    "engine_running": Field("vllm:num_requests_running", "requests", gauge=True),
    "engine_waiting": Field("vllm:num_requests_waiting", "requests", gauge=True),
}
"""Each value of a row; a gauge is what it is at the end of the interval. Beside them,
`engine_accepted_at_0` and so on: accepted at each position of a draft."""


class Page(NamedTuple):
    """One reading: sums over the followed engines."""

    at: int
    """ns since 1970"""
    sums: Mapping[str, float]
    """By series; of POSITIONS, by series and position."""
    model: str
    started: float
    """When the server's counters began, seconds since 1970; 0 if the page does not say."""


class Failed(OSError):
    """The page cannot be read, or it is not vLLM's."""


class VllmMetrics:
    """One server's /metrics; see the module."""

    def __init__(
        self,
        where: str,
        replica: str,
        *,
        fetch: Callable[[str], str] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """where: address of the page, with `#` and a number to follow one engine alone."""
        address, _, engine = where.partition("#")
        self.name = f"vllm.metrics {where}"
        self.replica = replica
        self.current: Source | None = None
        self._address, self._engine = address, engine
        self._fetch, self._now = fetch or fetched, now_ns
        self._due = 0
        self._before: Page | None = None
        self._harvest: Harvest | None = None
        self._boot: Row | None = None
        self._next: Page | None = None

    @property
    def missing(self) -> str:
        return "" if self.current else "its page has not been read"

    def poll(self, cursor_of: Callable[[Source], Cursor]) -> Harvest | None:  # noqa: ARG002
        if self._harvest is not None:
            return self._harvest
        if self._now() < self._due:
            return None
        self._due = self._now() + INTERVAL_NS
        page = read_page(self._fetch(self._address), self._engine, self._now())
        before, anew = self._before, self.current is None
        if before is None or page.started != before.started or _fell(before, page):
            anew, before = True, None  # counted since another start, or since nobody knows when
        if anew:
            self._begin(page)
        if self.current is None:
            return None
        self._next = page
        self._harvest = Harvest(
            source=self.current,
            boot=self._boot,
            # There are no records with numbers: an interval is known by its end.
            cursor=Cursor(page.at, FIRST_SEQ),
            rows={"device": rows_of(self.replica, before, page)} if before else {},
            losses=(),
        )
        return self._harvest

    def kept(self) -> None:
        self._before, self._next, self._harvest = self._next, None, None

    def close(self) -> None:
        """Do nothing: no file or connection stays open between readings."""

    def _begin(self, page: Page) -> None:
        """Begin another start of the server, with a name from the page's values."""
        # A page that does not say when it began is known by this reading of it.
        began = page.started or page.at / 1e9
        text = f"{self.replica} {self._address} {self._engine} {began!r}".encode()
        self.current = Source(self.replica, hashlib.blake2b(text, digest_size=8).hexdigest())
        longest = sum(name.startswith(POSITIONS) for name in page.sums)
        speculates = FIELDS["engine_drafts"].series in page.sums
        boot = new_boot(
            HookSettings(rings=None, replica=self.replica),
            boot=self.current.boot,
            started_at=int(began * 1e9),
            engine="vllm",
            engine_version="unknown",
            target=page.model,
            method="unknown" if speculates else "none",
            k_max=min(longest, 255),
            configuration={"followed by": "metrics", "k_max": longest},
            layout_hash=None,
        )
        self._boot = asdict(boot)
        log.warning(
            "%s: sums over intervals are stored, and no rounds: no verdict rests on them", self.name
        )


def fetched(address: str) -> str:
    """The text of an address. Raises OSError if it cannot be read."""
    if not address.startswith(("http://", "https://")):
        raise Failed(f"{address!r} is no http address")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            raw: bytes = answer.read(MOST_BYTES + 1)
    except (ValueError, HTTPException) as error:
        raise Failed(str(error)) from error
    if len(raw) > MOST_BYTES:
        raise Failed(f"the page is longer than {MOST_BYTES} bytes")
    return raw.decode("utf-8", "replace")


def read_page(text: str, engine: str, at: int) -> Page:
    """Read a page of vLLM.

    engine: number of the followed engine; empty to add up all

    Raises Failed if the text is not in Prometheus format, or lacks that engine.
    """
    from prometheus_client.parser import text_string_to_metric_families  # `doctor` has no extra

    wanted = {field.series for field in FIELDS.values()} | {POSITIONS}
    sums: dict[str, float] = {}
    models, created, process = set[str](), list[float](), 0.0
    try:
        for family in text_string_to_metric_families(text):
            for name, labels, value, *_ in family.samples:
                if name == "process_start_time_seconds":
                    process = value
                if not name.startswith("vllm:") or (engine and labels.get("engine") != engine):
                    continue
                if name == "vllm:generation_tokens_created":
                    created.append(value)
                if name not in wanted or not math.isfinite(value):
                    continue
                models.add(labels.get("model_name", "unknown"))
                key = f"{name} {labels['position']}" if name == POSITIONS else name
                sums[key] = sums.get(key, 0.0) + value
    except (ValueError, KeyError) as error:
        raise Failed(f"the page cannot be read: {error}") from error
    if FIELDS["engine_generation_tokens"].series not in sums:
        whose = f" of engine {engine}" if engine else ""
        raise Failed(f"the page has no counters{whose}: is it the /metrics of vLLM?")
    return Page(at, sums, ", ".join(sorted(models)), process or min(created, default=0.0))


def _fell(before: Page, page: Page) -> bool:
    """Whether a counter fell, because the server or one of its engines restarted."""
    gauges = {field.series for field in FIELDS.values() if field.gauge}
    return any(
        page.sums.get(name, 0.0) < value
        for name, value in before.sums.items()
        if name not in gauges
    )


def rows_of(replica: str, before: Page, page: Page) -> list[dict[str, Any]]:
    """Rows of `device`: increases between two readings of one server. Missing counters give unknown
    values, with the reason."""
    fields = dict(FIELDS)
    positions = [name.rpartition(" ")[2] for name in page.sums if name.startswith(POSITIONS)]
    for position in sorted(positions, key=int):
        fields[f"engine_accepted_at_{position}"] = Field(f"{POSITIONS} {position}", "tokens")
    return sum_rows(
        replica,
        before.at,
        page.at,
        (
            Sum(
                name,
                _risen(field, before, page),
                field.unit,
                "" if field.series in page.sums else f"the page has no {field.series}",
            )
            for name, field in fields.items()
        ),
    )


def _risen(field: Field, before: Page, page: Page) -> float | None:
    value = page.sums.get(field.series)
    if value is None or field.gauge:
        return value
    return value - before.sums.get(field.series, 0.0)
