"""The tables to take snapshots of, checked before anything is read; and what all their snapshots share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from spark_jobs.capture.continuity import check_identity, slot_identity
from spark_jobs.capture.masked_tables import MaskedNow
from spark_jobs.change_log.log import no_change_log
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.lake.drop_mark import landed_end
from spark_jobs.postgres.bulk_read import BulkConnect
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.fingerprints import Watched
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.followed_tables import watched_tables
from spark_jobs.tables.selected_columns import require_withheld
from spark_jobs.tables.stopped_tables import stopped_tables


@dataclass(frozen=True)
class SnapshotWork:
    """The tables to take snapshots of, and what their new generations are made from.

    ``checkpoint``: the newest window that was landed before the server began to export the snapshot. The snapshot shows
    all of it, and what its look at the catalogue saw; applying continues with the next one. A window that is landed
    later may end before the snapshot and look at the catalogue after it: its look counts, while its rows are skipped.
    ``reasons``: why, for automatic snapshots: a change that cannot be followed in place, or a break in the log.
    ``asked``: somebody wants these tables as they are now; otherwise changes of columns that the configuration refuses
    are refused here too. ``chunk_bytes``: the tables are read in chunks of about so many bytes, each in a snapshot of
    its own; None: in one exported snapshot. ``connect``: opens the sessions in which this process reads them.
    """

    run: Run
    names: tuple[QualifiedName, ...]
    checkpoint: WindowMarker
    connect: BulkConnect
    reasons: Mapping[QualifiedName, str] = field(default_factory=dict)
    asked: bool = True
    chunk_bytes: int | None = None

    @property
    def pipeline(self) -> Pipeline:
        return self.run.pipeline

    @cached_property
    def watched(self) -> Watched:
        """What the tables' fingerprints cover."""
        return watched_tables(self.pipeline, self.names, self.checkpoint)


def wanted_snapshots(
    run: Run,
    connect: BulkConnect,
    names: Sequence[QualifiedName] | None,
    reasons: Mapping[QualifiedName, str] | None,
    *,
    asked: bool,
) -> tuple[SnapshotWork, Mapping[QualifiedName, CdcError]]:
    """The snapshots to take of ``names``, by default all followed tables, up to the log's last window; and the errors
    of tables that cannot be followed. ``reasons``: why, for tables whose snapshot is automatic.

    Raises LakeError before ``prepare``: without a slot the changes after the snapshot would be lost. Raises
    PreconditionError for a table that does not exist, has no key, or cannot be followed, unless its snapshot is
    automatic. Raises ConfigurationError for a mask that does not fit its table.
    """
    pipeline = run.pipeline
    checkpoint = landed_end(pipeline.lake)
    if checkpoint is None:
        raise no_change_log(run.log.path)
    with run.source() as connection:
        at_source = AtSource(connection, pipeline).now()
        table_names = at_source.followed_names() if names is None else tuple(names)
        stopped = {table.name: table.error for table in stopped_tables(at_source, table_names, ())}
        for name, error in stopped.items():
            if reasons is None or name not in reasons:
                raise error
        table_names = tuple(name for name in table_names if name not in stopped)
        require_withheld(at_source)
        if masked := MaskedNow.of(at_source):
            masked.since(run.log.last_look(checkpoint), checkpoint)
    return SnapshotWork(run.of(at_source.pipeline), table_names, checkpoint, connect, reasons or {}, asked), stopped


def require_same_server(connection: Connection, work: SnapshotWork) -> None:
    """Raises BreakError unless the connection is to the server that the change log was read from."""
    check_identity(work.pipeline, work.checkpoint, slot_identity(AtSource(connection, work.pipeline)))
