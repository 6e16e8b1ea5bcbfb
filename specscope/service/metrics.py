"""The service's own metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """One set for one service; nothing is registered globally."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.streams = Gauge("specscope_streams", "Sidecars connected.", registry=registry)
        self.waiting_bytes = Gauge(
            "specscope_waiting_bytes", "Taken in and not yet stored.", registry=registry
        )
        self.batches = Counter("specscope_batches", "Batches stored.", registry=registry)
        self.repeated_batches = Counter(
            "specscope_repeated_batches",
            "Batches that the store already had, acknowledged again.",
            registry=registry,
        )
        self.stored_rows = Counter(
            "specscope_stored_rows", "Rows inserted, by table.", ["table"], registry=registry
        )
        self.refused_rows = Counter(
            "specscope_refused_rows", "Rows refused, by reason.", ["reason"], registry=registry
        )
        self.refused_calls = Counter(
            "specscope_refused_calls",
            "Streams and calls that were not served, by gRPC's code.",
            ["code"],
            registry=registry,
        )
        self.unknown_columns = Counter(
            "specscope_unknown_columns", "Columns dropped from batches.", registry=registry
        )
        self.insert_errors = Counter(
            "specscope_insert_errors",
            "Inserts that failed and were tried again, by ClickHouse's code.",
            ["code"],
            registry=registry,
        )
        self.store_full = Gauge(
            "specscope_store_full",
            "1 while the store's disk has less room than its floor and sidecars wait.",
            registry=registry,
        )
        self.insert_seconds = Histogram(
            "specscope_insert_seconds",
            "Time of one insert, by table.",
            ["table"],
            registry=registry,
        )
        self.rolled = Counter(
            "specscope_rolled", "Rollups computed, by grain.", ["grain"], registry=registry
        )
        self.queries = Counter(
            "specscope_queries", "Read queries, by outcome.", ["outcome"], registry=registry
        )

    def text(self) -> bytes:
        """In the exposition format."""
        return generate_latest(self._registry)
