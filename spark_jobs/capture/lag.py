"""How far the change log is behind the source, in bytes and in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from spark_jobs.change_log.commit_times import last_commit_time
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Lsn


@dataclass(frozen=True)
class Lag:
    """``bytes`` of WAL are not landed; ``seconds``: what was committed so long ago, or earlier, is landed."""

    bytes: int
    seconds: float


def lag_behind(pipeline: Pipeline, landed: WindowMarker, flushed: Lsn) -> Lag:
    """The lag of a log that ends with ``landed`` on a server whose WAL is flushed to ``flushed``.

    Nothing waits: 0 seconds. Less than a window waits: it was written since the last landing, however long ago the
    last commit was, so that a quiet database does not look late. More waits: the last landed commit says how late the
    log is. Raises LakeError.
    """
    behind = max(0, flushed - landed.window.hi)
    if not behind:
        return Lag(0, 0.0)
    log = ChangeLog(pipeline.lake.change_log)
    landed_at = log.landed_at()
    committed = last_commit_time(log, landed.ordinal) if behind > pipeline.windows.max_bytes else None
    since = committed or landed_at
    now = datetime.now(timezone.utc)
    return Lag(behind, max(0.0, (now - since).total_seconds()) if since else 0.0)
