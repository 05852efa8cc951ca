"""When transactions committed, by the change log: from a time to a commit, and back.

A time splits the order of commits as PostgreSQL's ``recovery_target_time`` does: before the first transaction that
committed after it. Commit times are not strictly ordered, so a later transaction may have an earlier time.
https://www.postgresql.org/docs/current/runtime-config-wal.html#GUC-RECOVERY-TARGET-TIME
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.errors import GapError
from spark_jobs.logicalrep.lsn import Lsn

# each search looks at four times as many windows as the one before
_SPAN = 4


@dataclass(frozen=True, order=True)
class LoggedCommit:
    """The commit at ``lsn`` in ``window``, an ordinal. Sorts in the order of commits, also across chapters."""

    window: int
    lsn: Lsn


def first_commit_after(log: ChangeLog, time: datetime) -> LoggedCommit | None:
    """The first commit in the log after ``time``, which has a time zone; None if there is none.

    Raises GapError if the log no longer reaches back to that time.
    """
    later = pc.field("commit_time") > pa.scalar(time, pa.timestamp("us", tz="UTC"))
    firsts = [_first(batch) for batch in log.scan(later, ["window", "commit_lsn"])]
    commit, oldest = min(firsts, default=None), log.first_window()
    if oldest is not None and oldest.ordinal > 0 and _may_follow_removed(log, time, commit, oldest.ordinal):
        raise GapError(
            f"the change log {log.path} no longer reaches back to {time.isoformat()}: it begins at {oldest.window.lo}",
            hint="choose a later time, or an LSN",
        )
    return commit


def holds_commit_before(log: ChangeLog, commit: LoggedCommit | None, first: int) -> bool:
    """Whether the log holds a commit before ``commit``, of the same chapter and from window ``first`` on; without a
    ``commit``, whether it holds one at all."""
    earlier = (pc.field("window") >= first) & pc.field("commit_time").is_valid()
    if commit is not None:
        earlier &= pc.field("commit_lsn") < int(commit.lsn)
    return any(True for _ in log.scan(earlier, ["window"], after_ordinal=first - 1))


def _may_follow_removed(log: ChangeLog, time: datetime, commit: LoggedCommit | None, oldest: int) -> bool:
    """Whether ``commit``, the first one left after ``time``, or the end of the log, may follow a removed one after
    ``time``. All of the removed windows were landed before the ``oldest`` one, and committed before that."""
    if commit is not None and commit.window <= oldest:
        return True
    landed = log.first_landed_at()
    return (landed is None or time < landed) and not holds_commit_before(log, commit, oldest)


def _first(batch: pa.RecordBatch) -> LoggedCommit:
    window = pc.min(batch.column("window")).as_py()
    of_window = batch.filter(pc.equal(batch.column("window"), window))
    return LoggedCommit(window, Lsn(pc.min(of_window.column("commit_lsn")).as_py()))


def last_commit_time(log: ChangeLog, ordinal: int) -> datetime | None:
    """When the last transaction of the windows up to ``ordinal`` committed; None if the log holds no rows of one."""
    last, span = ordinal, 1
    while last >= 0:
        windows = (pc.field("window") > last - span) & (pc.field("window") <= last)
        committed = windows & pc.field("commit_time").is_valid()
        batches = list(log.scan(committed, ["commit_lsn", "commit_time"]))
        if batches:
            rows = pa.Table.from_batches(batches)
            newest = pc.equal(rows.column("commit_lsn"), pc.max(rows.column("commit_lsn")))
            time: datetime = rows.filter(newest).column("commit_time")[0].as_py()
            return time
        last, span = last - span, span * _SPAN
    return None


@dataclass(frozen=True)
class WindowTimes:
    """The first and the last commit time of a window, UTC."""

    first: datetime
    last: datetime


def window_times(log: ChangeLog, first_ordinal: int, last_ordinal: int) -> Mapping[int, WindowTimes]:
    """Of the windows ``first_ordinal`` to ``last_ordinal``, both inclusive, by ordinal; without windows that hold no
    transaction. Memory does not grow with them. Raises LakeError."""
    by_ordinal: dict[int, WindowTimes] = {}
    window = pc.field("window")
    committed = (window >= first_ordinal) & (window <= last_ordinal) & pc.field("commit_time").is_valid()
    for batch in log.scan(committed, ["window", "commit_time"], after_ordinal=first_ordinal - 1):
        table = pa.Table.from_batches([batch]).group_by("window")
        for row in table.aggregate([("commit_time", "min"), ("commit_time", "max")]).to_pylist():
            times = WindowTimes(row["commit_time_min"], row["commit_time_max"])
            known = by_ordinal.get(row["window"], times)
            by_ordinal[row["window"]] = WindowTimes(min(known.first, times.first), max(known.last, times.last))
    return by_ordinal
