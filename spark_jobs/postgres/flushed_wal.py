"""How far the source has flushed its WAL, and what time it is there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import Connection, source_errors

# the WAL writer flushes every 0.2 s by default
_FLUSH_LOOKS, _FLUSH_PAUSE_SECONDS = 30, 0.1
# a commit without anything to write, which wakes the WAL writer: it flushes all that was inserted before
_FLUSH = "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_xact_id() END"
# on a standby, decoding can read what is replayed
_FLUSHED = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END)::text
"""
_CLOCK = "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() ELSE clock_timestamp() END"


def flushed_lsn(connection: Connection) -> Lsn:
    """How far a window may reach: the end of the WAL flushed by a primary, or replayed by a standby."""
    with source_errors("the end of the WAL could not be read"):
        rows = connection.execute(_FLUSHED).fetchall()
    return Lsn.parse(rows[0][0])


@dataclass(frozen=True)
class SourceClock:
    """At ``time`` the source had flushed its WAL up to ``flushed``, or further. A standby knows of its primary's time
    only by transactions: ``time`` is that of the last one replayed, None before the first."""

    time: datetime | None
    flushed: Lsn


def source_clock(connection: Connection) -> SourceClock:
    with source_errors("the time of the source could not be read"):
        (time,) = connection.execute(_CLOCK).fetchall()[0]  # before the WAL, so that this is not older
    return SourceClock(time, flushed_lsn(connection))


def source_time(connection: Connection) -> str | None:
    """``SourceClock.time`` without its fraction, in ISO 8601, UTC."""
    time = source_clock(connection).time
    return None if time is None else time.isoformat(timespec="seconds")


def wait_until_flushed(connection: Connection, lsn: int) -> Lsn:
    """Wait until the WAL up to ``lsn`` is flushed, at most three seconds; returns ``flushed_lsn``.

    The WAL must already be inserted. What a transaction that is still open has written may wait for long: the server
    flushes whole pages, and up to commits.
    """
    if (flushed := flushed_lsn(connection)) >= lsn:
        return flushed
    with source_errors("the WAL could not be flushed"):
        connection.execute(_FLUSH)
    for _ in range(_FLUSH_LOOKS):
        if flushed_lsn(connection) >= lsn:
            break
        time.sleep(_FLUSH_PAUSE_SECONDS)
    return flushed_lsn(connection)
