"""The report as a page of the service: rendered on request, then cached for a while."""

from __future__ import annotations

import asyncio
import time

from specscope.store.connection import Store

KEPT_S = 600.0  # a report on a large fleet takes seconds of a core
PERIOD_NS = 7 * 24 * 3600 * 10**9


class ReportPage:
    """The latest report. It runs in one event loop and renders one page at a time."""

    def __init__(self, store: Store) -> None:
        """store: a separate session."""
        self._store = store
        self._turn = asyncio.Lock()
        self._page = ""
        self._made_at: float | None = None

    async def html(self) -> str:
        """The page, rendered again if it is older than KEPT_S.

        Raises StoreError, or ImportError if the extra for reports is not installed.
        """
        async with self._turn:
            if self._made_at is None or time.monotonic() - self._made_at > KEPT_S:
                self._page = await asyncio.to_thread(self._make)
                self._made_at = time.monotonic()
            return self._page

    def _make(self) -> str:
        # numpy, scipy and matplotlib take a second to load.
        from specscope.report.collect import collect
        from specscope.report.render import to_html

        since = time.time_ns() - PERIOD_NS
        return to_html(collect(self._store, title="Speculative decoding", since=since))
