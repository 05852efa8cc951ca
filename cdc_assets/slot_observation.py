"""One look at the slot and at the change log, which the sensor plots and plans from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Lsn, Window

if TYPE_CHECKING:
    from spark_jobs.capture.lag import Lag
    from spark_jobs.change_log.chapters import Chapters
    from spark_jobs.postgres.health import ServerIdentity, SlotHealth


# a sensor's tick must end in time, however busy the server is
_STATEMENT_TIMEOUT = "10s"
_FIRST_REACH = 128
# the names of one version ago: plots and alerts of users still ask for them
_FORMERLY = {
    "confirmed_flush_bytes": "confirmed_flush_distance_bytes",
    "restart_bytes": "restart_distance_bytes",
    "safe_wal_size": "safe_wal_size_bytes",
}


@dataclass(frozen=True)
class Observation:
    """``landed_end``: the end of the change log, whichever process landed its last window; ``lag``: how late it is.
    ``settled``: up to when it has the ends of all days and hours, None without time partitions."""

    pipeline: Pipeline
    health: SlotHealth
    landed_end: Lsn
    lag: Lag
    settled: datetime | None = None

    def planned(self) -> tuple[Window, ...]:
        """The windows up to the WAL that is flushed now. Raises GapError if the slot does not continue the log."""
        from spark_jobs.capture.windows import plan_windows

        confirmed = self.health.confirmed_flush_lsn or self.landed_end
        return plan_windows(self.landed_end, confirmed, self.health.flushed_lsn, self.pipeline.windows)


def observe(pipeline: Pipeline) -> Observation | None:
    """Look once, with one statement and without Spark. Returns None if there is no change log yet.

    Raises BreakError if the slot no longer continues the change log, SourceError, LakeError.
    """
    from spark_jobs.capture.continuity import check_health
    from spark_jobs.capture.lag import lag_behind
    from spark_jobs.change_log.log import ChangeLog

    checkpoint = ChangeLog(pipeline.lake.change_log).checkpoint()
    if checkpoint is None:
        return None
    health = check_health(pipeline, checkpoint, _health(pipeline))
    lag = lag_behind(pipeline, checkpoint, health.flushed_lsn)
    periods = checkpoint.periods
    settled = datetime.fromisoformat(periods.settled) if periods is not None and pipeline.periods else None
    return Observation(pipeline, health, checkpoint.window.hi, lag, settled)


def observed_health(pipeline: Pipeline) -> tuple[SlotHealth, Lag | None]:
    """The slot's present health, and the lag, which is None if no change log belongs to the slot.

    Raises SlotError if there is no slot, SourceError, LakeError.
    """
    from spark_jobs.capture.continuity import check_health
    from spark_jobs.capture.lag import lag_behind
    from spark_jobs.change_log.log import ChangeLog
    from spark_jobs.errors import BreakError
    from spark_jobs.postgres.health import ServerIdentity
    from spark_jobs.postgres.slot import missing_slot

    health = _health(pipeline)
    if isinstance(health, ServerIdentity):
        raise missing_slot(pipeline.source.slot)
    checkpoint = ChangeLog(pipeline.lake.change_log).checkpoint()
    with suppress(BreakError):  # slot_findings reports a lost slot; LSNs of another server give no lag
        if checkpoint is not None:
            check_health(pipeline, checkpoint, health)
            return health, lag_behind(pipeline, checkpoint, health.flushed_lsn)
    return health, None


def _health(pipeline: Pipeline) -> SlotHealth | ServerIdentity:
    from spark_jobs.postgres.connection import connected
    from spark_jobs.postgres.health import find_slot_health

    with connected(pipeline.source.dsn, statement_timeout=_STATEMENT_TIMEOUT) as connection:
        return find_slot_health(connection, pipeline.source.slot)


def landed_chapters(pipeline: Pipeline) -> Chapters | None:
    """The chapters of the change log, by which a partition is known to be landed, lost or still to come."""
    from spark_jobs.change_log.chapters import chapters_of
    from spark_jobs.change_log.log import ChangeLog

    return chapters_of(ChangeLog(pipeline.lake.change_log))


def markers_since(pipeline: Pipeline, lsn: Lsn) -> tuple[WindowMarker, ...]:
    """The markers of the landed windows that end after ``lsn``, in order, within the log's last chapter.

    They are searched from the end of the log backwards: ``lsn`` is recent, and the log may be long.
    """
    from spark_jobs.change_log.log import ChangeLog

    log = ChangeLog(pipeline.lake.change_log)
    last = log.checkpoint()
    if last is None or last.window.hi <= lsn:
        return ()
    reach = _FIRST_REACH
    while True:
        landed = log.markers(after_ordinal=last.ordinal - reach)
        markers = [marker for marker in landed if marker.identity.chapter == last.identity.chapter]
        if markers[0].window.lo <= lsn or len(markers) < len(landed) or reach > last.ordinal:
            return tuple(marker for marker in markers if marker.window.hi > lsn)
        reach *= 8


def health_metadata(health: SlotHealth, lag: Lag | None) -> Mapping[str, dg.MetadataValue]:
    """Bytes and seconds as numbers, which are plotted. ``lag_bytes`` is WAL that is not landed yet.

    Dagster's freshness checks read up to when the change log has everything: on a quiet database, until now.
    """
    oldest = health.oldest_transaction
    numbers = {
        "lag_bytes": lag.bytes if lag else None,
        "lag_seconds": int(lag.seconds) if lag else None,
        "confirmed_flush_bytes": health.confirmed_flush_bytes,
        "restart_bytes": health.restart_bytes,
        "safe_wal_size": health.safe_wal_size,
        "oldest_transaction_seconds": int(oldest.age.total_seconds()) if oldest and oldest.age is not None else None,
        "free_replication_slots": health.free_replication_slots,
    }
    texts = {
        "wal_status": health.wal_status,
        "confirmed_flush_lsn": health.confirmed_flush_lsn,
        "restart_lsn": health.restart_lsn,
        "flushed_lsn": health.flushed_lsn,
        "invalidation_reason": health.invalidation_reason,
        "oldest_transaction": oldest,
        "system_identifier": health.server.system_identifier,
    }
    numbers |= {former: numbers[name] for name, former in _FORMERLY.items()}
    complete = datetime.now(UTC) - timedelta(seconds=lag.seconds) if lag else None
    return {
        **({"dagster/last_updated_timestamp": dg.MetadataValue.timestamp(complete)} if complete else {}),
        **{name: dg.MetadataValue.int(number) for name, number in numbers.items() if number is not None},
        **{name: dg.MetadataValue.text(str(text)) for name, text in texts.items() if text is not None},
    }
