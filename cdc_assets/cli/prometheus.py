"""A pipeline's status in Prometheus's text format.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from spark_jobs.status import PipelineStatus

# the names of one version ago: dashboards and alerts of users still ask for them
_FORMERLY = {"restart_bytes": "restart_distance_bytes", "safe_wal_size_bytes": "safe_wal_bytes"}

_Samples = Iterable[tuple[Mapping[str, str], float | None]]


def prometheus_text(status: PipelineStatus) -> str:
    """All known numbers of the status, as gauges with the label of the pipeline, and of the table where it is one's."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusMetrics(lambda: status))
    return generate_latest(registry).decode()


class StatusMetrics(Collector):
    """The gauges of the status that ``status`` returns with each scrape; None if it is not known."""

    def __init__(self, status: Callable[[], PipelineStatus | None]) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        return ()  # otherwise a registry would query the status before any scrape

    def collect(self) -> Iterator[Metric]:
        if (status := self._status()) is not None:
            yield from _Gauges(status).collect()


@dataclass(frozen=True)
class _Gauges:
    status: PipelineStatus

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._of_pipeline()
        yield from self._of_tables()

    def _of_pipeline(self) -> Iterator[GaugeMetricFamily]:
        slot, log, status = self.status.slot, self.status.log, self.status
        oldest = slot.oldest_transaction if slot else None
        counts = {s: sum(each.severity == s for each in status.findings) for s in ("warn", "error")}
        one: Mapping[str, tuple[str, float | None]] = {
            "up": ("1: the source answered, and the slot continues the change log", status.source_error is None),
            "lag_bytes": ("WAL that is not landed in the change log", log.lag_bytes if log else None),
            "lag_seconds": (
                "how late the change log is: what was committed longer ago is landed",
                log.lag_seconds if log else None,
            ),
            "restart_bytes": (
                "WAL that the server retains for the slot; each read decodes it",
                slot.restart_bytes if slot else None,
            ),
            "safe_wal_size_bytes": (
                "WAL until max_slot_wal_keep_size is exceeded; absent without that limit",
                slot.safe_wal_size if slot else None,
            ),
            "oldest_transaction_seconds": (
                "age of the oldest transaction that holds the slot back",
                oldest.age.total_seconds() if oldest and oldest.age is not None else None,
            ),
            "free_replication_slots": (
                "replication slots of the server that are free",
                slot.free_replication_slots if slot else None,
            ),
            "slot_active": ("1: a server process is reading from the slot", slot.active if slot else None),
            "landed_windows": ("windows ever landed in the change log", log.landed_windows if log else None),
        }
        for name, (meaning, number) in one.items():
            yield self._gauge(name, meaning, (), [({}, number)])
            if former := _FORMERLY.get(name):
                yield self._gauge(former, f"renamed to postgres_cdc_{name}", (), [({}, number)])
        yield self._gauge(
            "findings",
            "values beyond a threshold, and signs that the slot may be lost",
            ("severity",),
            [({"severity": s}, n) for s, n in counts.items()],
        )

    def _of_tables(self) -> Iterator[GaugeMetricFamily]:
        tables = [({"table": str(table.name)}, table) for table in self.status.tables]
        of_each: Mapping[str, tuple[str, _Samples]] = {
            "table_lag_bytes": (
                "WAL between what the table shows and the source",
                [(n, t.lag_bytes) for n, t in tables],
            ),
            "table_lag_seconds": (
                "how late the table is: what was committed longer ago is in it",
                [(n, t.lag_seconds) for n, t in tables],
            ),
            "table_pending_changes": (
                "changes that are landed and not applied",
                [(n, t.pending_changes) for n, t in tables],
            ),
            "table_delta_version": ("newest version of the Delta table", [(n, t.delta_version) for n, t in tables]),
            "table_stopped": ("1: an error stops the table", [(n, t.error is not None) for n, t in tables]),
        }
        for name, (meaning, samples) in of_each.items():
            yield self._gauge(name, meaning, ("table",), samples)

    def _gauge(self, name: str, meaning: str, labels: tuple[str, ...], samples: _Samples) -> GaugeMetricFamily:
        """An unknown number has no sample: Prometheus can alert on an absent series."""
        gauge = GaugeMetricFamily(f"postgres_cdc_{name}", meaning, labels=("pipeline", *labels))
        for values, number in samples:
            if number is not None:
                gauge.add_metric([self.status.pipeline, *(values[label] for label in labels)], float(number))
        return gauge
