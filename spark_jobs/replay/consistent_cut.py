"""Which Delta version of each table to read, so that all are at one LSN."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from spark_jobs.change_log.commit_times import first_commit_after, last_commit_time
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.lake.cuts import cut_until
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.points import Point


@dataclass(frozen=True)
class TableVersion:
    """The Delta table at ``path``, to be read at ``delta_version``."""

    name: QualifiedName
    delta_version: int
    path: str


@dataclass(frozen=True)
class ConsistentCut:
    """All ``tables`` as they were at ``lsn``, the end of window ``window``. ``commit_time`` is that of the last
    transaction before it in the change log, None if there is none."""

    lsn: Lsn
    commit_time: datetime | None
    window: int
    tables: tuple[TableVersion, ...]


def consistent_cut(pipeline: Pipeline, at: Point | None = None) -> ConsistentCut:
    """The newest cut at or before ``at``; by default the latest.

    Raises LakeError if there is none, GapError if the change log no longer reaches back to that time.
    """
    log = ChangeLog(pipeline.lake.change_log)
    if isinstance(at, datetime):
        after = first_commit_after(log, at)
        cut = cut_until(pipeline.lake, before_window=None if after is None else after.window)
    else:
        cut = cut_until(pipeline.lake, at)
    tables = tuple(TableVersion(table.name, table.version, pipeline.lake.table(table.name)) for table in cut.tables)
    return ConsistentCut(cut.lsn, last_commit_time(log, cut.ordinal), cut.ordinal, tables)
