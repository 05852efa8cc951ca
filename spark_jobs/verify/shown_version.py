"""Finds the Delta version of a table that shows a window's end, even if others have written the table since."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake
from spark_jobs.delta.table import delta_identifier
from spark_jobs.errors import OvertakenError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# the number of commits to look at: others may have committed since the table was brought to the window's end
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


def shown_version(spark: SparkSession, lake: Lake, name: QualifiedName, at: WindowMarker) -> int:
    """The version that shows the end of window ``at``, to which the table has been brought.

    Other writers' commits belong to the version: the comparison must see what they did to the rows. Raises
    OvertakenError if no version shows exactly that: a snapshot was taken since, or one commit leads past it.
    """
    commits = _newest_commits(spark, lake.table(name))
    beyond = [commit for commit in commits if commit.is_beyond(at)]
    if not beyond:
        return commits[0].version
    earliest = beyond[-1]
    if earliest.snapshot_lsn > at.window.hi:
        raise OvertakenError(f"{name} has a newer snapshot, of {earliest.snapshot_lsn}", hint="run it again")
    if earliest.version == commits[-1].version or _leads_past(lake, name, earliest, at):
        raise OvertakenError(f"another process brought {name} beyond {at.window.hi}", hint="run it again")
    return earliest.version - 1


def _newest_commits(spark: SparkSession, path: str) -> Sequence[_Commit]:
    """Newest first."""
    history = spark.sql(f"DESCRIBE HISTORY {delta_identifier(path)} LIMIT {_COMMITS}")
    return [_commit(row["version"], row["userMetadata"]) for row in history.select("version", "userMetadata").collect()]


def _commit(version: int, user_metadata: str | None) -> _Commit:
    try:
        said = json.loads(user_metadata or "")
        return _Commit(version, said["first_window"], said["last_window"], Lsn.parse(said["snapshot_lsn"]))
    except (ValueError, KeyError, TypeError):  # not one of ours
        return _Commit(version)


def _leads_past(lake: Lake, name: QualifiedName, commit: _Commit, at: WindowMarker) -> bool:
    """Whether the commit also contains changes from before the window's end."""
    assert commit.first is not None
    covered = ChangeLog(lake.change_log).markers(commit.first - 1)
    return any(
        (counts.nspname, counts.relname) == (name.nspname, name.relname)
        for marker in covered
        if marker.ordinal <= at.ordinal
        for counts in marker.relations
    )
