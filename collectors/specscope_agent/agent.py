"""The sidecar's loop: drain the rings, make rows, sample devices, spool; ship beside it.

Nothing is kept between batches but what can be found again: a batch in the spool carries
the ring's cursor, so an agent that is killed at any moment goes on where its last whole
batch ends.
"""

from __future__ import annotations

import logging
import threading
import time

from specscope_agent.batchfile import Batch
from specscope_agent.cut import Cut, cut
from specscope_agent.errors import AgentError
from specscope_agent.loss import Losses, rows_table
from specscope_agent.metrics import Metrics
from specscope_agent.policies import Policies
from specscope_agent.rings import OpenRing, Rings
from specscope_agent.settings import AgentSettings
from specscope_agent.spool import Spool
from specscope_agent.ticks import ticks
from specscope_agent.uplink import Uplink
from specscope_agent.wire import encode
from specscope_hook.boot import hook_version
from specscope_hook.errors import HookError

log = logging.getLogger("specscope.agent")

PERIOD_S = 0.4  # so that a record is published within half a second of being written
LAST_WORDS_S = 10.0  # at the end, for the service to acknowledge; Kubernetes grants 30 s
BOOT, FAULT, END = "boot", "fault", "end"  # said once a boot


class Agent:
    """One sidecar; `tick` is one turn of its loop."""

    def __init__(self, settings: AgentSettings, metrics: Metrics | None = None) -> None:
        """Raises SpoolError where the spool cannot be had."""
        self.metrics = metrics or Metrics()
        self.spool = Spool.open(settings.spool, settings.spool_bytes)
        self.rings = Rings(settings.rings)
        self.policies = Policies(settings.spool)
        self.uplink = (
            Uplink(
                settings.service,
                self.spool,
                self.policies.receive,
                version=hook_version(),
                policy=lambda: self.policies.number,
            )
            if settings.service
            else None
        )

    def run(self, stop: threading.Event) -> None:
        """Turn until `stop` is set, then drain what is left and give it a moment to arrive."""
        if self.uplink:
            self.uplink.start()
        for late in ticks(PERIOD_S, stop):
            self.metrics.late.inc(late)
            self.tick()
        self.tick()
        self._wait_for_acknowledgements()
        self.close()

    def tick(self) -> None:
        """Drain every ring once."""
        self.rings.refresh()
        self.policies.apply(ring.reader for ring in self.rings.open)
        for ring in self.rings.open:
            try:
                self._drain(ring)
            except (AgentError, HookError, OSError) as error:
                self.metrics.errors.labels("drain").inc()
                log.warning("%s is drained later: %s", ring.path.name, error)
        self._finish_orphans()
        self._show()

    def close(self) -> None:
        if self.uplink:
            self.uplink.close()
        self.rings.close()
        self.spool.close()

    def _drain(self, ring: OpenRing) -> None:
        dead = not ring.reader.writer_alive  # before pulling, so that an empty pull means done
        while self.spool.has_room:
            made = cut(ring, self.spool.newest(ring.source).cursor)
            brought = self._keep(ring, made)
            ring.quiet = ring.quiet + 1 if dead and not brought else 0
            if not made.more:
                break
        # A record that does not match its check is given a second pull before it is lost.
        if ring.quiet > 1:
            self._finish(ring)

    def _keep(self, ring: OpenRing, made: Cut) -> bool:
        """Spool what was cut, then give its space back; False where it is nothing."""
        newest = self.spool.newest(ring.source)
        encoded, said = list(made.encoded), set[str]()
        if BOOT not in newest.said:
            encoded += encode({"boot": rows_table("boot", [ring.reader.boot])})
            said.add(BOOT)
        if ring.reader.fault_text and FAULT not in newest.said:
            made.losses.add("ring", "fault", made.cursor.next_seq, None, ring.reader.fault_text)
            said.add(FAULT)
        encoded += encode({"loss": made.losses.table()})
        if not encoded:
            return False
        self.spool.add(ring.source, made.cursor, encoded, said)
        ring.reader.release(made.cursor)
        self._count(made)
        return True

    def _finish(self, ring: OpenRing) -> None:
        """A ring that is drained and whose writer is gone: say how it ended, then remove it."""
        newest = self.spool.newest(ring.source)
        whole = ring.reader.ended or ring.reader.fault_text
        if not whole and END not in newest.said:
            self._lose_tail(newest)
        elif self.spool.waiting(ring.source) == 0:
            self.rings.remove(ring)
            self.spool.forget(ring.source)

    def _lose_tail(self, newest: Batch) -> None:
        losses = Losses(newest.source, time.time_ns())
        losses.add("ring", "tail_unknown", newest.cursor.next_seq, None)
        self.spool.add(newest.source, newest.cursor, encode({"loss": losses.table()}), {END})
        self.metrics.losses.labels("tail_unknown").inc()

    def _finish_orphans(self) -> None:
        """Sources in the spool whose ring is gone, with the machine's memory for instance."""
        for source in set(self.spool.sources) - {ring.source for ring in self.rings.open}:
            newest = self.spool.newest(source)
            if END not in newest.said:
                self._lose_tail(newest)
            elif self.spool.waiting(source) == 0:
                self.spool.forget(source)

    def _wait_for_acknowledgements(self) -> None:
        deadline = time.monotonic() + LAST_WORDS_S
        with self.spool.changed:
            while self.uplink and self.uplink.counts.connected and self._waiting():
                if not self.spool.changed.wait(deadline - time.monotonic()):
                    log.warning("%d batches stay in the spool", self._waiting())
                    return

    def _waiting(self) -> int:
        return sum(self.spool.waiting(source) for source in self.spool.sources)

    def _count(self, made: Cut) -> None:
        self.metrics.batches.inc()
        self.metrics.records.inc(made.records)
        for name, rows in made.tables.items():
            self.metrics.rows.labels(name).inc(rows.num_rows)
        for row in made.losses.rows:
            self.metrics.losses.labels(row["reason"]).inc(row["count"] or 0)

    def _show(self) -> None:
        metrics, rings = self.metrics, self.rings.open
        metrics.rings.set(len(rings))
        metrics.refused.set(self.rings.refused)
        metrics.faults.set(sum(1 for ring in rings if ring.reader.fault_text))
        metrics.spool.set(self.spool.disk_bytes)
        metrics.waiting.set(self._waiting())
        metrics.policy.set(self.policies.number)
        if self.uplink:
            metrics.connected.set(self.uplink.counts.connected)
            metrics.acknowledged.set(self.uplink.counts.acknowledged)
            metrics.refused_rows.set(self.uplink.counts.refused_rows)


def run(settings: AgentSettings, stop: threading.Event) -> None:
    """Be the sidecar until `stop` is set. Raises AgentError where it cannot start."""
    metrics = Metrics()
    agent = Agent(settings, metrics)
    if settings.metrics_port:
        try:
            metrics.serve(settings.metrics_port)
        except OSError as error:
            agent.close()
            raise AgentError(
                f"port {settings.metrics_port} for metrics: {error.strerror}"
            ) from error
    agent.run(stop)
