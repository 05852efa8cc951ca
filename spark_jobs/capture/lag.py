"""How far the change log is behind the source, in bytes of WAL and in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from spark_jobs.change_log.commit_times import last_commit_time, window_times
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Lsn


@dataclass(frozen=True)
class Lag:
    """``bytes`` of WAL are not landed yet. Whatever was committed more than ``seconds`` ago is landed."""

    bytes: int
    seconds: float


def lag_behind(pipeline: Pipeline, landed: WindowMarker, flushed: Lsn) -> Lag:
    """The lag of a log whose last marker is ``landed`` on a server that has flushed its WAL up to ``flushed``.

    With no WAL left to read, the lag is 0 seconds. Up to one window of WAL must have been written since the last
    landing, so the lag counts from that landing; otherwise a quiet database would look late. With more WAL than that,
    it counts from the last landed commit. Raises LakeError.
    """
    behind = max(0, flushed - landed.window.hi)
    if not behind:
        return Lag(0, 0.0)
    log = ChangeLog(pipeline.lake.change_log)
    landed_at = log.landed_at()
    committed = last_commit_time(log, landed.ordinal) if behind > pipeline.windows.max_bytes else None
    start = committed or landed_at
    return Lag(behind, _seconds_since(start) if start else 0.0)


def lag_since(log: ChangeLog, ordinal: int) -> float | None:
    """How late a table is that shows nothing of window ``ordinal``, in which it has changes: the seconds since the
    window's first commit. Raises LakeError."""
    times = window_times(log, ordinal, ordinal).get(ordinal)
    return _seconds_since(times.first) if times else None


def _seconds_since(time: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - time).total_seconds())
