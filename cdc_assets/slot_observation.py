"""One look at the slot and at the change log: what the sensor plots and plans from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Lsn, Window

if TYPE_CHECKING:
    from spark_jobs.postgres.health import SlotHealth


# a sensor's tick must end in time, whatever the server is busy with
_STATEMENT_TIMEOUT = "10s"
_FIRST_REACH = 128


@dataclass(frozen=True)
class Observation:
    """``landed_end``: where the change log ends, whoever landed its last window."""

    pipeline: Pipeline
    health: SlotHealth
    landed_end: Lsn

    def planned(self) -> tuple[Window, ...]:
        """The windows up to the WAL that is flushed now. Raises GapError when the slot no longer fits the log."""
        from spark_jobs.capture.windows import plan_windows

        confirmed = self.health.confirmed_flush_lsn or self.landed_end
        return plan_windows(self.landed_end, confirmed, self.health.flushed_lsn, self.pipeline.windows)

    def metadata(self) -> Mapping[str, dg.MetadataValue]:
        """For the plots: numbers; ``lag_bytes`` is WAL that is not landed yet."""
        lag = max(0, self.health.flushed_lsn - self.landed_end)
        return {"lag_bytes": dg.MetadataValue.int(lag), **health_metadata(self.health)}


def observe(pipeline: Pipeline) -> Observation | None:
    """Look once; None where neither slot nor change log is there yet. One statement, no Spark.

    Raises SlotError when there is a change log but its slot is gone, SourceError, LakeError.
    """
    from spark_jobs.change_log.log import ChangeLog

    checkpoint = ChangeLog(pipeline.lake.change_log).checkpoint()
    if checkpoint is None:
        return None
    return Observation(pipeline, observed_health(pipeline), checkpoint.window.hi)


def observed_health(pipeline: Pipeline) -> SlotHealth:
    """The slot's health now. Raises SlotError when there is no slot, SourceError."""
    from spark_jobs.postgres.connection import connected
    from spark_jobs.postgres.health import slot_health

    with connected(pipeline.source.dsn) as connection:
        connection.execute("SELECT set_config('statement_timeout', %s, false)", [_STATEMENT_TIMEOUT])
        return slot_health(connection, pipeline.source.slot)


def markers_since(pipeline: Pipeline, lsn: Lsn) -> tuple[WindowMarker, ...]:
    """The markers of the landed windows that end after ``lsn``, in order.

    Searched from the end of the log backwards: what is asked for is recent, and the log may be long.
    """
    from spark_jobs.change_log.log import ChangeLog

    log = ChangeLog(pipeline.lake.change_log)
    last = log.checkpoint()
    if last is None or last.window.hi <= lsn:
        return ()
    reach = _FIRST_REACH
    while True:
        markers = log.markers(after_ordinal=last.ordinal - reach)
        if markers[0].window.lo <= lsn or reach > last.ordinal:
            return tuple(marker for marker in markers if marker.window.hi > lsn)
        reach *= 8


def health_metadata(health: SlotHealth) -> Mapping[str, dg.MetadataValue]:
    """Distances in bytes, ages in seconds."""
    numbers = {
        "confirmed_flush_distance_bytes": health.confirmed_flush_distance,
        "restart_distance_bytes": health.restart_distance,
        "safe_wal_size_bytes": health.safe_wal_size,
        "oldest_transaction_seconds": (
            None if health.oldest_transaction_age is None else int(health.oldest_transaction_age.total_seconds())
        ),
    }
    texts = {
        "wal_status": health.wal_status,
        "confirmed_flush_lsn": health.confirmed_flush_lsn,
        "restart_lsn": health.restart_lsn,
        "flushed_lsn": health.flushed_lsn,
        "invalidation_reason": health.invalidation_reason,
        "system_identifier": health.server.system_identifier,
    }
    return {
        **{name: dg.MetadataValue.int(number) for name, number in numbers.items() if number is not None},
        **{name: dg.MetadataValue.text(str(text)) for name, text in texts.items() if text is not None},
    }
