"""The sidecar's loop: drain the rings, make rows, sample devices, spool; another thread ships.

The agent keeps no state between batches. A batch in the spool contains the ring's cursor, so a
killed agent resumes after its last complete batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from specscope_agent import probes
from specscope_agent.cut import Cut
from specscope_agent.devices import rows_by_ring
from specscope_agent.drain import Drain
from specscope_agent.errors import AgentError
from specscope_agent.guardrail import Guardrail
from specscope_agent.health import Health, Watchdog
from specscope_agent.metrics import Metrics
from specscope_agent.policies import Policies
from specscope_agent.rings import OpenRing, Rings
from specscope_agent.sampler import Sampler
from specscope_agent.settings import AgentSettings
from specscope_agent.source import Source
from specscope_agent.sources.keep import Keeper
from specscope_agent.sources.kinds import KINDS
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
STAGES = {"rings", "devices", "orphans", "policy", "metrics"}  # of a turn, beside one a ring
MOST_STAGES = 1000

T = TypeVar("T")


class Agent:
    """One sidecar; `tick` runs its loop once."""

    def __init__(self, settings: AgentSettings, metrics: Metrics | None = None) -> None:
        """Raises SpoolError if the spool cannot be opened."""
        self.metrics = metrics or Metrics()
        self.spool = Spool.open(settings.spool, settings.spool_bytes)
        self.rings = Rings(settings.rings)
        self.policies = Policies(settings.spool)
        self.guardrail = Guardrail(settings.spool / "guardrail.json")
        self.sampler = Sampler()
        self.spans = Spans.to(settings.otlp, settings.sample) if settings.otlp else None
        self.uplink = self._uplink(settings) if settings.service else None
        self._drain = Drain(
            self.rings,
            self.spool,
            self.metrics,
            self.sampler,
            [self._watch],
            held=lambda: self.guardrail.held,
        )
        self.keeper = Keeper(
            [KINDS[s.kind].follow(s.where, s.replica) for s in settings.sources],
            self.spool,
            self.metrics,
        )
        self.health = Health()
        if self.uplink:
            self.health.threads["uplink"] = self.uplink.thread
        self._watchdog = Watchdog(self.health)
        self._complained_at: dict[str, float] = {}

    def _uplink(self, settings: AgentSettings) -> Uplink:
        return Uplink(
            settings.service or "",
            self.spool,
            self.policies.receive,
            version=hook_version(),
            policy=lambda: self.policies.number,
            security=settings.security,
        )

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set, then drain the rings and give the last batches a moment to
        arrive."""
        self.sampler.start()
        if self.uplink:
            self.uplink.start()
        self._watchdog.start()
        for late in ticks(PERIOD_S, stop):
            self.metrics.late.inc(late)
            self.tick()
        self.tick()
        self._wait_for_acknowledgements()
        self.close()

    def tick(self) -> None:
        """Drain every ring once, and write the policy into the rings. Never raises."""
        self._survive("rings", self.rings.refresh)
        rings = self.rings.open
        device_rows = self._survive("devices", self._device_rows, rings) or {}
        for ring in rings:
            stage = f"drain {ring.path.name}"
            self._survive(stage, self._drain.empty, ring, device_rows.get(ring.source, ()))
        for source in self.keeper.sources:
            self._survive(f"follow {source.name}", self.keeper.follow, source)
        if self.rings.ours:
            self._survive("orphans", self._drain.finish_orphans, self.keeper.followed())
        self._survive("policy", self._follow_policy)
        self._survive("metrics", self._show)
        drained = {f"drain {ring.path.name}" for ring in rings}
        followed = {f"follow {source.name}" for source in self.keeper.sources}
        self.health.forget(drained | followed | STAGES)

    def _device_rows(self, rings: Sequence[OpenRing]) -> dict[Source, list[dict[str, Any]]]:
        """Device readings since the last turn, by replica."""
        living = [ring for ring in rings if ring.reader.writer_alive]
        if not living:
            self.sampler.forget()
        return rows_by_ring(self.sampler.take(), living)

    def close(self) -> None:
        """Release everything; batches without acknowledgement stay in the spool."""
        self._watchdog.close()
        if self.uplink:
            self.uplink.close()
        if self.spans:
            self.spans.close()
        self.sampler.close()
        self.rings.close()
        self.keeper.close()
        self.spool.close()

    def _survive(self, stage: str, act: Callable[..., T], *arguments: object) -> T | None:
        """Run a stage. A failure is counted, logged once a minute and retried; returns None
        then."""
        self.health.doing(stage)
        try:
            answer = act(*arguments)
        except Exception as error:  # of one ring, one policy: the others go on
            known = isinstance(error, AgentError | HookError | OSError)
            reason = str(error) if known else repr(error)
            self.metrics.errors.labels(stage.split()[0]).inc()
            self.health.failed(stage, reason)
            now = time.monotonic()
            if now - self._complained_at.get(stage, -COMPLAINT_INTERVAL_S) >= COMPLAINT_INTERVAL_S:
                if len(self._complained_at) > MOST_STAGES:  # names of rings that are long gone
                    self._complained_at.clear()
                self._complained_at[stage] = now
                log.warning("%s: %s; tried again", stage, reason, exc_info=not known)
            return None
        self.health.worked(stage)
        return answer

    def _watch(self, ring: OpenRing, made: Cut) -> None:
        self.guardrail.observe(made.tables)
        if self.spans:
            self.spans.add(ring.origin, made.records, made.tables)

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
    """Run the sidecar until `stop` is set. Raises AgentError if it cannot start."""
    agent = Agent(settings)
    if not settings.service:
        log.warning("SPECSCOPE_SERVICE is not set: batches stay in the spool %s", settings.spool)
    if settings.metrics_port:
        try:
            probes.serve(
                settings.metrics_host, settings.metrics_port, agent.metrics.registry, agent.health
            )
        except OSError as error:
            agent.close()
            raise AgentError(
                f"port {settings.metrics_port} for metrics: {error.strerror or error}"
            ) from error
    agent.run(stop)
