"""The tables to take snapshots of: checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.capture.continuity import check_identity, slot_identity
from spark_jobs.capture.masked_tables import MaskedNow, last_look
from spark_jobs.change_log.log import ChangeLog, no_change_log
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import CdcError
from spark_jobs.lake.drop_mark import landed_end
from spark_jobs.postgres.connection import connected
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.planned_table import SnapshotWork
from spark_jobs.tables.followed_tables import followed_names, watched_tables
from spark_jobs.tables.matching_tables import refreshed
from spark_jobs.tables.selected_columns import require_withheld
from spark_jobs.tables.stopped_tables import stopped_tables


@dataclass(frozen=True)
class WantedSnapshots:
    """The tables to take snapshots of, when nothing stands against it. ``checkpoint``: the log's last window. For the
    rest see ``SnapshotWork``. ``stopped``: the tables that cannot be followed, of those with a reason."""

    run: Run
    names: tuple[QualifiedName, ...]
    checkpoint: WindowMarker
    reasons: Mapping[QualifiedName, str]
    asked: bool
    stopped: Mapping[QualifiedName, CdcError]

    def work(self, names: Sequence[QualifiedName], checkpoint: WindowMarker, chunk: int | None = None) -> SnapshotWork:
        """The work on some of the tables, whose snapshots show everything up to ``checkpoint``."""
        watched = watched_tables(self.run.pipeline, tuple(names), checkpoint)
        return SnapshotWork(self.run, tuple(names), checkpoint, watched, self.reasons, self.asked, chunk)


def wanted_snapshots(
    run: Run, names: Sequence[QualifiedName] | None, reasons: Mapping[QualifiedName, str] | None, *, asked: bool
) -> WantedSnapshots:
    """Check what is to be read: ``names``, by default all followed tables. ``reasons``: why, for tables whose snapshot
    is automatic.

    Raises LakeError before ``prepare``: without a slot the changes after the snapshot would be lost. Raises
    PreconditionError for a table that does not exist, has no key, or cannot be followed, unless its snapshot is
    automatic. Raises ConfigurationError for a mask that does not fit its table.
    """
    pipeline = run.pipeline
    log = ChangeLog(pipeline.lake.change_log)
    checkpoint = landed_end(pipeline.lake)
    if checkpoint is None:
        raise no_change_log(log.path)
    with connected(pipeline.source.dsn) as connection:
        pipeline = refreshed(connection, pipeline)
        table_names = followed_names(connection, pipeline) if names is None else tuple(names)
        stopped = {table.name: table.error for table in stopped_tables(connection, pipeline, table_names, ())}
        for name, error in stopped.items():
            if reasons is None or name not in reasons:
                raise error
        table_names = tuple(name for name in table_names if name not in stopped)
        require_withheld(connection, pipeline)
        if masked := MaskedNow.of(connection, pipeline):
            masked.since(last_look(log, checkpoint), log, checkpoint)
    return WantedSnapshots(run.of(pipeline), table_names, checkpoint, reasons or {}, asked, stopped)


def require_same_server(run: Run, checkpoint: WindowMarker) -> None:
    """Raises BreakError unless the source is the server that the change log was read from."""
    with connected(run.pipeline.source.dsn) as connection:
        check_identity(run.pipeline, checkpoint, slot_identity(connection, run.pipeline))
