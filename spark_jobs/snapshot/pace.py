"""How often a table gets a new snapshot without being asked: DDL on every run must not cost a snapshot every time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from spark_jobs.lake.table_state import SnapshotCause

# this many in a row without a pause; then with a pause that doubles
_AT_ONCE = 3
_FIRST_PAUSE = timedelta(minutes=10)
_LONGEST_PAUSE = timedelta(hours=6)
# after this long without one, counting starts again
_CALM = timedelta(hours=24)


def next_cause(last: SnapshotCause | None, reason: str) -> SnapshotCause:
    """The cause of an automatic snapshot that is taken now."""
    now = datetime.now(timezone.utc)
    in_a_row = last is not None and now - last.at < _CALM
    return SnapshotCause(reason, last.number + 1 if last is not None and in_a_row else 1, now)


def next_snapshot_at(last: SnapshotCause | None) -> datetime | None:
    """When the next automatic snapshot may be taken; None: now."""
    if last is None or last.number < _AT_ONCE:
        return None
    pause = min(_FIRST_PAUSE * 2 ** min(last.number - _AT_ONCE, 16), _LONGEST_PAUSE)
    due = last.at + pause
    return due if due > datetime.now(timezone.utc) else None
