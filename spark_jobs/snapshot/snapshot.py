"""Takes new snapshots of followed tables: small ones together at one LSN, large ones in chunks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from spark_jobs.errors import CdcError, SnapshotWaitsError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.bulk_read import bulk_connections
from spark_jobs.postgres.connection import conninfo
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.at_one_lsn import snapshot_at_one_lsn
from spark_jobs.snapshot.chunks.chunked_table import chunked_tables, large_tables
from spark_jobs.snapshot.chunks.read_chunks import Pace
from spark_jobs.snapshot.chunks.read_plan import ReadRecord, plans
from spark_jobs.snapshot.chunks.snapshot_in_chunks import snapshot_in_chunks
from spark_jobs.snapshot.exporter import Exporter, given_or_own
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.snapshot.wanted_snapshots import WantedSnapshots, wanted_snapshots


def snapshot(
    run: Run,
    names: Sequence[QualifiedName] | None = None,
    *,
    reasons: Mapping[QualifiedName, str] | None = None,
    exporter: Exporter | None = None,
    asked: bool = True,
    capturing: AbstractContextManager[object] | None = None,
) -> tuple[TableSnapshot, ...]:
    """Take new snapshots of ``names``, by default all followed tables.

    ``reasons``: why, for tables whose snapshot is automatic. ``exporter``: that of a caller who does other things while
    the server waits for open transactions; its patience says how long large tables are read in one call. ``asked``: a
    person wants these snapshots, which accepts what ``on_schema_change`` would refuse. ``capturing`` is held while a
    window is landed, as another thread of this process may land windows too. A table that fails is reported with its
    error, and keeps its rows; one that is not read to its end, with a SnapshotGoesOnError.

    Raises what ``wanted_snapshots`` raises, and if ``asked`` SnapshotWaitsError for a snapshot that is not exported in
    time; nothing was changed then.
    """
    wanted = wanted_snapshots(run, names, reasons, asked=asked)
    if not wanted.names:
        return _failed(wanted.stopped)
    with given_or_own(exporter, run.pipeline.source.dsn) as exports, wanted.run.guarded() as run:
        wanted = replace(wanted, run=run)
        chunked, errors = chunked_tables(wanted, large_tables(wanted))
        others = [name for name in wanted.names if name not in errors and name not in {each.name for each in chunked}]
        taken = _at_one_lsn(wanted, others, exports) if others else ()
        _forget_chunks(run, taken)
        pace = Pace(run.pipeline.snapshot.bytes_per_second, time.monotonic() + exports.patience.reading)
        with bulk_connections(conninfo(run.pipeline.source.dsn)) as connect:
            taken += tuple(
                snapshot_in_chunks(wanted, table, pace, connect, capturing or nullcontext()) for table in chunked
            )
    return (*taken, *_failed({**errors, **wanted.stopped}))


def _at_one_lsn(
    wanted: WantedSnapshots, names: Sequence[QualifiedName], exports: Exporter
) -> tuple[TableSnapshot, ...]:
    try:
        return snapshot_at_one_lsn(wanted, names, exports)
    except SnapshotWaitsError as error:
        if wanted.asked:
            raise
        return tuple(_waits(name, wanted.reasons.get(name, ""), error) for name in names)


def _waits(name: QualifiedName, why: str, error: SnapshotWaitsError) -> TableSnapshot:
    return TableSnapshot(name, Lsn(0), error=error.within(why) if why else error, reason=why)


def _forget_chunks(run: Run, taken: Sequence[TableSnapshot]) -> None:
    """Tables that are read in one piece now may have been larger, or in the lake in another way, before."""
    done = {table.name for table in taken if table.error is None}
    for name in [plan.name for plan in plans(run.pipeline.lake) if plan.name in done]:
        ReadRecord(run.pipeline.lake, name).remove()


def _failed(errors: Mapping[QualifiedName, CdcError]) -> tuple[TableSnapshot, ...]:
    return tuple(TableSnapshot(name, Lsn(0), error=error) for name, error in errors.items())
