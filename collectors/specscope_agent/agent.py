"""The sidecar's loop: drain the rings, make rows, sample devices, spool; ship beside it.

Nothing is kept between batches but what can be found again: a batch in the spool carries
the ring's cursor, so an agent that is killed at any moment goes on where its last whole
batch ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from specscope_agent.cut import Cut
from specscope_agent.devices import rows_by_ring
from specscope_agent.drain import Drain
from specscope_agent.errors import AgentError
from specscope_agent.guardrail import Guardrail
from specscope_agent.metrics import Metrics
from specscope_agent.policies import Policies
from specscope_agent.rings import OpenRing, Rings
from specscope_agent.sampler import Sampler
from specscope_agent.settings import AgentSettings
from specscope_agent.spans import Spans
from specscope_agent.spool import Spool
from specscope_agent.ticks import ticks
from specscope_agent.uplink import Uplink
from specscope_hook.boot import hook_version
from specscope_hook.errors import HookError

log = logging.getLogger("specscope.agent")

PERIOD_S = 0.45  # with the work of a turn, a record is published within half a second
LAST_WORDS_S = 10.0  # at the end, for the service to acknowledge; Kubernetes grants 30 s
COMPLAINT_INTERVAL_S = 60.0


class Agent:
    """One sidecar; `tick` is one turn of its loop."""

    def __init__(self, settings: AgentSettings, metrics: Metrics | None = None) -> None:
        """Raises SpoolError where the spool cannot be had."""
        self.metrics = metrics or Metrics()
        self.spool = Spool.open(settings.spool, settings.spool_bytes)
        self.rings = Rings(settings.rings)
        self.policies = Policies(settings.spool)
        self.guardrail = Guardrail(settings.spool / "guardrail.json", time.time)
        self.sampler = Sampler()
        self.spans = Spans.to(settings.otlp, settings.sample) if settings.otlp else None
        self.uplink = self._uplink(settings.service) if settings.service else None
        self._drain = Drain(
            self.rings,
            self.spool,
            self.metrics,
            self.sampler,
            [self._watch],
            held=lambda: self.guardrail.held,
        )
        self._complained_at = -COMPLAINT_INTERVAL_S

    def _uplink(self, service: str) -> Uplink:
        return Uplink(
            service,
            self.spool,
            self.policies.receive,
            version=hook_version(),
            policy=lambda: self.policies.number,
        )

    def run(self, stop: threading.Event) -> None:
        """Turn until `stop` is set, then drain what is left and give it a moment to arrive."""
        self.sampler.start()
        if self.uplink:
            self.uplink.start()
        for late in ticks(PERIOD_S, stop):
            self.metrics.late.inc(late)
            self.tick()
        self.tick()
        self._wait_for_acknowledgements()
        self.close()

    def tick(self) -> None:
        """One turn: every ring drained once, the policy where it belongs."""
        self._survive("rings", self.rings.refresh)
        living = [ring for ring in self.rings.open if ring.reader.writer_alive]
        if not living:
            self.sampler.forget()
        device_rows = rows_by_ring(self.sampler.take(), living)
        for ring in self.rings.open:
            self._survive("drain", self._drain.empty, ring, device_rows.get(ring.source, ()))
        if self.rings.ours:
            self._survive("drain", self._drain.finish_orphans)
        self._survive("policy", self._follow_policy)
        self._show()

    def close(self) -> None:
        """Give everything back; what is not acknowledged stays in the spool."""
        if self.uplink:
            self.uplink.close()
        if self.spans:
            self.spans.close()
        self.sampler.close()
        self.rings.close()
        self.spool.close()

    def _survive(self, stage: str, act: Callable[..., None], *arguments: object) -> None:
        """Do it; a failure that we know is counted, said once a minute, and tried again."""
        try:
            act(*arguments)
        except (AgentError, HookError, OSError) as error:
            self.metrics.errors.labels(stage).inc()
            if time.monotonic() - self._complained_at >= COMPLAINT_INTERVAL_S:
                self._complained_at = time.monotonic()
                log.warning("%s: %s; tried again", stage, error)

    def _watch(self, ring: OpenRing, made: Cut) -> None:
        self.guardrail.observe(made.tables)
        if self.spans:
            self.spans.add(ring.source, made.records, made.tables)

    def _follow_policy(self) -> None:
        self.guardrail.follow(self.policies.text)
        if self.guardrail.turn() and (held := self.guardrail.held):
            self.metrics.guardrail.inc()
            log.warning("k = 0 from now on: %s", held.reason)
        self.policies.apply([ring.reader for ring in self.rings.open], self.guardrail.lowered)

    def _wait_for_acknowledgements(self) -> None:
        deadline = time.monotonic() + LAST_WORDS_S
        with self.spool.changed:
            while self.uplink and self.uplink.counts.connected and self._waiting():
                if not self.spool.changed.wait(deadline - time.monotonic()):
                    log.warning("%d batches stay in the spool", self._waiting())
                    return

    def _waiting(self) -> int:
        return sum(self.spool.waiting(source) for source in self.spool.sources)

    def _show(self) -> None:
        metrics, rings = self.metrics, self.rings.open
        metrics.rings.set(len(rings))
        metrics.refused.set(self.rings.refused)
        metrics.faults.set(sum(1 for ring in rings if ring.reader.fault_text))
        metrics.spool.set(self.spool.disk_bytes)
        metrics.spool_full.set(not self.spool.has_room)
        for table, rows in self.spool.dropped_rows.items():
            metrics.dropped.labels(table).set(rows)
        metrics.waiting.set(self._waiting())
        metrics.policy.set(self.policies.number)
        metrics.spans.set(self.spans.made if self.spans else 0)
        if self.uplink:
            metrics.connected.set(self.uplink.counts.connected)
            metrics.acknowledged.set(self.uplink.counts.acknowledged)
            metrics.refused_rows.set(self.uplink.counts.refused_rows)


def run(settings: AgentSettings, stop: threading.Event) -> None:
    """Be the sidecar until `stop` is set. Raises AgentError where it cannot start."""
    agent = Agent(settings)
    if not settings.service:
        log.warning("SPECSCOPE_SERVICE is not set: batches stay in the spool %s", settings.spool)
    if settings.metrics_port:
        try:
            agent.metrics.serve(settings.metrics_port)
        except OSError as error:
            agent.close()
            raise AgentError(
                f"port {settings.metrics_port} for metrics: {error.strerror}"
            ) from error
    agent.run(stop)
