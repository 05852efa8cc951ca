"""Takes new snapshots of followed tables at one LSN: checks the preconditions, and keeps the cuts valid meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_jobs.capture.continuity import check_identity, slot_identity
from spark_jobs.capture.masked_tables import MaskedNow, last_look
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.errors import CdcError, SlotError
from spark_jobs.lake.cuts import forget
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import connected
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import Exporter, given_or_own
from spark_jobs.snapshot.planned_table import SnapshotWork
from spark_jobs.snapshot.snapshot_tables import TableSnapshot, snapshot_tables
from spark_jobs.tables.followed_tables import followed_names, watched_tables
from spark_jobs.tables.matching_tables import refreshed
from spark_jobs.tables.selected_columns import require_withheld
from spark_jobs.tables.stopped_tables import stopped_tables


def snapshot(
    run: Run,
    names: Sequence[QualifiedName] | None = None,
    *,
    reasons: Mapping[QualifiedName, str] | None = None,
    exporter: Exporter | None = None,
    asked: bool = True,
) -> tuple[TableSnapshot, ...]:
    """Take new snapshots of ``names``, by default all followed tables, at one LSN.

    ``reasons``: why, for tables whose snapshot is automatic. ``exporter``: that of a caller who does other things while
    the server waits for open transactions. ``asked``: a person wants these snapshots, which accepts what
    ``on_schema_change`` would refuse. A table that fails is reported with its error, and keeps its rows.

    Raises SlotError before ``prepare``: without a slot the changes after the snapshot would be lost. Raises
    PreconditionError for a table that does not exist, has no key, or cannot be followed, unless its snapshot is
    automatic. Raises ConfigurationError for a mask that does not fit its table, and SnapshotWaitsError for a snapshot
    that is not exported in time; nothing was changed then.
    """
    pipeline = run.pipeline
    log = ChangeLog(pipeline.lake.change_log)
    checkpoint = log.checkpoint()
    if checkpoint is None:
        raise SlotError(
            f"there is no change log at {log.path}", hint="`postgres-cdc sync` creates the slot and the change log"
        )
    with connected(pipeline.source.dsn) as connection:
        pipeline = refreshed(connection, pipeline)
        wanted = followed_names(connection, pipeline) if names is None else tuple(names)
        stopped = {table.name: table.error for table in stopped_tables(connection, pipeline, wanted, ())}
        for name, error in stopped.items():
            if reasons is None or name not in reasons:
                raise error
        wanted = tuple(name for name in wanted if name not in stopped)
        require_withheld(connection, pipeline)
        if masked := MaskedNow.of(connection, pipeline):
            masked.since(last_look(log, checkpoint), log, checkpoint)

    if not wanted:
        return _failed(stopped)
    with given_or_own(exporter, pipeline.source.dsn) as exports:
        # windows that were landed while the server waited may hold changes that the snapshot does not show
        checkpoint = exports.begin(checkpoint)
        with exports.exported(run.progress) as (exported, shows), run.of(pipeline).guarded() as run:
            with connected(pipeline.source.dsn) as connection:  # the log's server must have exported it
                check_identity(pipeline, checkpoint, slot_identity(connection, pipeline))
            with run.guard.cuts():
                forget(pipeline.lake, wanted)
            watched = watched_tables(pipeline, wanted, checkpoint)
            work = SnapshotWork(run, wanted, checkpoint, watched, reasons or {}, asked)
            taken = snapshot_tables(work, exported, shows)
            with run.guard.cuts():  # a concurrent run may have written a cut with the old tables
                forget(pipeline.lake, wanted)
    return (*taken, *_failed(stopped))


def _failed(errors: Mapping[QualifiedName, CdcError]) -> tuple[TableSnapshot, ...]:
    return tuple(TableSnapshot(name, Lsn(0), error=error) for name, error in errors.items())
