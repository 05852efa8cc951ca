"""Finds the Delta version of a table that shows a window's end, even if others have written the table since."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.delta.commit import Commit
from spark_jobs.delta.table import log_errors
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.errors import LakeError, OvertakenError, new_snapshot
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

# the number of commits to look at, at most: others may have committed since the table was brought to the window's end
_COMMITS = 100


@dataclass(frozen=True)
class _Commit:
    """``first`` and ``last`` are the windows that it covers; ``first`` is None if the commit is not ours."""

    version: int
    first: int | None = None
    last: int = 0
    snapshot_lsn: Lsn = Lsn(0)  # noqa: RUF009 - a number

    def is_beyond(self, at: WindowMarker) -> bool:
        if self.first is None or self.last < at.identity.chapter:  # LSNs of an earlier chapter cannot be compared
            return False
        return self.last > at.ordinal or self.snapshot_lsn > at.window.hi


def shown_version(pipeline: Pipeline, name: QualifiedName, at: WindowMarker) -> int:
    """The version that shows the end of window ``at``, to which the table has been brought.

    Other writers' commits belong to the version: the comparison must see what they did to the rows. Raises
    OvertakenError if no version shows exactly that: a snapshot was taken since, or one commit leads past it. Raises
    LakeError if the table's log cannot be read.
    """
    path = pipeline.lake.table(name)
    with log_errors(f"{name} was not compared", path):
        log = TransactionLog.open(path)
        if log is None:
            raise LakeError(f"{path} is no Delta table", hint=new_snapshot(name))
        beyond, is_first = _first_beyond(log, at)
    if beyond is None:
        return log.version
    if beyond.snapshot_lsn > at.window.hi:
        raise OvertakenError(f"{name} has a newer snapshot, of {beyond.snapshot_lsn}", hint="run it again")
    if not is_first or _leads_past(pipeline, name, beyond, at):
        raise OvertakenError(f"another process brought {name} beyond {at.window.hi}", hint="run it again")
    return beyond.version - 1


def _first_beyond(log: TransactionLog, at: WindowMarker) -> tuple[_Commit | None, bool]:
    """The oldest of the newest commits that is beyond the window, None if none is; and whether it is certain that no
    older one is."""
    oldest = None
    for commit in islice(log.commits(), _COMMITS):
        read = _read(commit)
        if read.is_beyond(at):
            oldest = read
        elif read.first is not None:  # one of ours: all older ones are within the window, too
            return oldest, True
    return oldest, False


def _read(commit: Commit) -> _Commit:
    try:
        metadata = commit.user_metadata
        return _Commit(
            commit.version, metadata["first_window"], metadata["last_window"], Lsn.parse(metadata["snapshot_lsn"])
        )
    except (ValueError, KeyError, TypeError):  # not one of ours
        return _Commit(commit.version)


def _leads_past(pipeline: Pipeline, name: QualifiedName, commit: _Commit, at: WindowMarker) -> bool:
    """Whether the commit also contains changes from before the window's end."""
    assert commit.first is not None
    relation = pipeline.relation(name)
    covered = ChangeLog(pipeline.lake.change_log).markers(commit.first - 1)
    until = (marker for marker in covered if marker.ordinal <= at.ordinal)
    return any(counts.name == relation for marker in until for counts in marker.relations)
