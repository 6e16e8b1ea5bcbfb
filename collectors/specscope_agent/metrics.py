"""The sidecar's own Prometheus metrics: work, losses and lag."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """One registry a process; nothing is registered globally."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.records = self._counter("records", "Records drained from rings")
        self.rows = self._counter("rows", "Rows made, by table", "table")
        self.losses = self._counter("lost_records", "Records lost, by reason", "reason")
        self.batches = self._counter("batches", "Batches put into the spool")
        self.late = self._counter("late_ticks", "Rounds of the loop that began late")
        self.errors = self._counter("errors", "Failures that were survived, by stage", "stage")
        self.guardrail = self._counter("guardrail", "Times that the guardrail lowered k")
        self.rings = self._gauge("rings", "Rings being drained")
        self.refused = self._gauge("refused_rings", "Files that look like rings and are none")
        self.faults = self._gauge("hook_faults", "Rings whose hook has detached itself")
        self.spool = self._gauge("spool_bytes", "Bytes of the spool on disk")
        self.dropped = self._gauge("dropped_rows", "Rows that a full spool gave up", "table")
        self.spool_full = self._gauge("spool_full", "1 while nothing is drained for want of room")
        self.waiting = self._gauge("spool_batches", "Batches without an acknowledgement")
        self.connected = self._gauge("connected", "1 while the service has answered")
        self.acknowledged = self._gauge("acknowledged_batches", "Batches that the store has")
        self.refused_rows = self._gauge("refused_rows", "Rows that the service did not keep")
        self.spans = self._gauge("spans", "Spans made of sampled requests and their rounds")
        self.policy = self._gauge("policy", "Number of the policy in force; 0 where none is")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"specscope_agent_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"specscope_agent_{name}", text, labels, registry=self.registry)
