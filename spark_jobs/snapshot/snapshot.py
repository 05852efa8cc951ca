"""Takes new snapshots of followed tables: small ones together at one LSN, large ones in chunks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from spark_jobs.errors import CdcError, SnapshotWaitsError
from spark_jobs.postgres.bulk_read import bulk_connections
from spark_jobs.postgres.connection import conninfo
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.chunks.chunk_readers import Pace
from spark_jobs.snapshot.chunks.chunked_table import chunked_tables, large_tables
from spark_jobs.snapshot.chunks.read_record import ReadRecord, plans
from spark_jobs.snapshot.chunks.snapshot_in_chunks import snapshot_in_chunks
from spark_jobs.snapshot.exporter import Exporter
from spark_jobs.snapshot.snapshot_tables import TableSnapshot, cuts_forgotten, snapshot_tables
from spark_jobs.snapshot.snapshot_work import SnapshotWork, require_same_server, wanted_snapshots


def snapshot(
    run: Run,
    names: Sequence[QualifiedName] | None = None,
    *,
    reasons: Mapping[QualifiedName, str] | None = None,
    exporter: Exporter | None = None,
    asked: bool = True,
) -> tuple[TableSnapshot, ...]:
    """Take new snapshots of ``names``, by default all followed tables.

    ``reasons``: why, for tables whose snapshot is automatic. ``exporter``: that of a caller who does other things while
    the server waits for open transactions; its patience says how long large tables are read in one call. ``asked``: a
    person wants these snapshots, which accepts what ``on_schema_change`` would refuse. A table that fails is reported
    with its error, and keeps its rows; one that is not read to its end, with a SnapshotGoesOnError.

    Raises what ``wanted_snapshots`` raises, and if ``asked`` SnapshotWaitsError for a snapshot that is not exported in
    time; nothing was changed then.
    """
    with bulk_connections(conninfo(run.pipeline.source.dsn)) as connect:
        work, stopped = wanted_snapshots(run, connect, names, reasons, asked=asked)
        if not work.names:
            return _failed(stopped)
        own = Exporter(run.pipeline.source.dsn) if exporter is None else nullcontext(exporter)
        with own as exports, work.run.guarded() as run:
            work = replace(work, run=run)
            chunked, errors = chunked_tables(work, large_tables(work))
            others = tuple(name for name in work.names if name not in {*errors, *(each.name for each in chunked)})
            snapshots = _at_one_lsn(replace(work, names=others), exports) if others else ()
            _forget_chunks(run, snapshots)
            pace = Pace(run.pipeline.snapshot.bytes_per_second, time.monotonic() + exports.patience.reading)
            snapshots += tuple(snapshot_in_chunks(table, pace) for table in chunked)
    return (*snapshots, *_failed({**errors, **stopped}))


def _at_one_lsn(work: SnapshotWork, exports: Exporter) -> tuple[TableSnapshot, ...]:
    """All of them in one exported snapshot; the cuts are kept valid meanwhile."""
    # windows that were landed while the server waited may hold changes that the snapshot does not show
    work = replace(work, checkpoint=exports.begin(work.checkpoint))
    try:
        with exports.exported(work.run.progress) as (exported, shows):
            require_same_server(shows, work)  # the log's server must have exported it
            with cuts_forgotten(work.run, work.names):
                return snapshot_tables(work, exported, shows)
    except SnapshotWaitsError as error:
        if work.asked:
            raise
        return tuple(
            TableSnapshot(name, error=error.within(why) if why else error, reason=why)
            for name in work.names
            for why in [work.reasons.get(name, "")]
        )


def _forget_chunks(run: Run, snapshots: Sequence[TableSnapshot]) -> None:
    """Tables that are read in one piece now may have been larger, or in the lake in another way, before."""
    done = {table.name for table in snapshots if table.error is None}
    for name in [plan.name for plan in plans(run.pipeline.lake) if plan.name in done]:
        ReadRecord(run.pipeline.lake, name).remove()


def _failed(errors: Mapping[QualifiedName, CdcError]) -> tuple[TableSnapshot, ...]:
    return tuple(TableSnapshot(name, error=error) for name, error in errors.items())
