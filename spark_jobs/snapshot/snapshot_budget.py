"""How often a table may get an automatic snapshot: as often as needed, if it is cheap.

Beyond one hour in total, the automatic snapshots of a table may take a quarter of the time that passes. So a table that
is read within a second is read after each change. One that takes an hour is read again at once, and then, if it keeps
changing, every few hours: the source must not be read without end.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spark_jobs.lake.table_state import SnapshotCause

_AT_ONCE = timedelta(hours=1)
_SHARE = 0.25
_LONGEST_PAUSE = timedelta(hours=24)


def next_cause(last: SnapshotCause | None, reason: str, began: datetime | None) -> SnapshotCause:
    """The cause of an automatic snapshot that ``began`` then; None: it begins now."""
    at = began or datetime.now(UTC)
    return SnapshotCause(reason, at, spent_of(last, at))


def spent_of(last: SnapshotCause | None, now: datetime) -> float:
    """The seconds that automatic snapshots have used up and not regained since; a snapshot itself regains nothing."""
    if last is None:
        return 0.0
    used = last.spent + (last.seconds or 0.0)
    return max(0.0, used - _SHARE * max(0.0, (now - _end(last)).total_seconds()))


def next_snapshot_at(last: SnapshotCause | None) -> datetime | None:
    """When the next automatic snapshot may be taken; None: now."""
    if last is None:
        return None
    over = spent_of(last, _end(last)) - _AT_ONCE.total_seconds()
    due = _end(last) + min(timedelta(seconds=max(0.0, over) / _SHARE), _LONGEST_PAUSE)
    return due if due > datetime.now(UTC) else None


def _end(last: SnapshotCause) -> datetime:
    return last.at + timedelta(seconds=last.seconds or 0.0)
