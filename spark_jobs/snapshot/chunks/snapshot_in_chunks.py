"""One table read in chunks: those that are missing, then what changed meanwhile. Begun again if it is altered."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager

from deltalake.transaction import AddAction

from spark_jobs.errors import CdcError, SnapshotGoesOnError, SourceError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.bulk_read import BulkConnect
from spark_jobs.progress import Step
from spark_jobs.schema.misfits import Misfits
from spark_jobs.snapshot.chunks.adoption import Adoption, void_if_changed
from spark_jobs.snapshot.chunks.chunked_table import (
    ChunkedTable,
    VoidPlanError,
    chunked_tables,
    planned,
    same_as_planned,
)
from spark_jobs.snapshot.chunks.finish import finished
from spark_jobs.snapshot.chunks.read_chunks import Pace, read_chunks
from spark_jobs.snapshot.chunks.read_plan import ChunksRead
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.snapshot.table_read import TaskReader
from spark_jobs.snapshot.wanted_snapshots import WantedSnapshots, require_same_server
from spark_jobs.spark.session_conf import local_cores

_log = logging.getLogger(__name__)


def snapshot_in_chunks(
    wanted: WantedSnapshots,
    chunked: ChunkedTable,
    pace: Pace,
    connect: BulkConnect,
    capturing: AbstractContextManager[object],
) -> TableSnapshot:
    while True:
        try:
            return _read_on(wanted, chunked, pace, connect, capturing)
        except VoidPlanError as void:
            _log.warning("%s is read from the start: %s", chunked.name, void)
            chunked.record.void(chunked.plan)
            again, errors = chunked_tables(wanted, [chunked.name])
            if not again:
                error = errors.get(chunked.name) or SnapshotGoesOnError(
                    f"{chunked.name} cannot be read in chunks: {void}", hint="the next run reads it in one transaction"
                )
                return TableSnapshot(chunked.name, Lsn(0), error=error, reason=chunked.table.reason)
            chunked = again[0]
        except CdcError as error:
            reason = chunked.table.reason
            return TableSnapshot(chunked.name, Lsn(0), chunked.plan.relid, error=error, reason=reason)


def _read_on(
    wanted: WantedSnapshots,
    chunked: ChunkedTable,
    pace: Pace,
    connect: BulkConnect,
    capturing: AbstractContextManager[object],
) -> TableSnapshot:
    """Read chunks until all are read or the time is over. Raises SnapshotGoesOnError in the second case."""
    run, table, record = wanted.run, chunked.table, chunked.record
    with run.guard.table(chunked.name):
        if (before := table.state()) is not None:
            table.require_accepted(chunked.read, before)
        require_same_server(run, wanted.checkpoint)
        if chunked.is_new:
            record.begin(chunked.plan)
        done = _all_read(wanted, chunked, pace, connect)
    return finished(wanted, chunked, done, connect, capturing)


def _all_read(wanted: WantedSnapshots, chunked: ChunkedTable, pace: Pace, connect: BulkConnect) -> ChunksRead:
    """Read what is missing. Raises SnapshotGoesOnError if the time is over before all is read."""
    plan, record = chunked.plan, chunked.record
    while True:
        _read_pieces(wanted, chunked, pace, connect)
        if left := len(record.unread(plan)):
            raise SnapshotGoesOnError(
                f"{plan.pieces - left:,} of {plan.pieces:,} chunks of {chunked.name} are read",
                hint="`postgres-cdc sync` reads the others",
            )
        done = record.chunks(plan)
        if not (gone := chunked.staged.missing(done.files)):
            return done
        if done.is_corrected:
            raise VoidPlanError(f"{len(gone)} of the files that it was read into are gone")
        record.forget(plan, gone)


def _read_pieces(wanted: WantedSnapshots, chunked: ChunkedTable, pace: Pace, connect: BulkConnect) -> None:
    plan, record, policy = chunked.plan, chunked.record, wanted.run.pipeline.on_unrepresentable
    unread = record.unread(plan)
    chunks = [number for number in unread if number < len(plan.chunks)]
    if not (plan.adopted and unread):
        _read(wanted, chunked, chunks, chunked.read.task_reader(connect, None, policy), pace)
        return
    with void_if_changed(chunked):
        adoption = Adoption.of(chunked)
        _read(wanted, chunked, chunks, adoption.reader(connect, pace), pace)
        if record.unread(plan) == (len(plan.chunks),):
            record.add(len(plan.chunks), adoption.write())
            adoption.forget()


def _read(
    wanted: WantedSnapshots, chunked: ChunkedTable, numbers: Sequence[int], read_chunk: TaskReader, pace: Pace
) -> None:
    run, plan, record = wanted.run, chunked.plan, chunked.record
    options = run.pipeline.snapshot
    left = set(numbers)

    def is_read(number: int, files: Sequence[AddAction], misfits: Misfits) -> None:
        record.add(number, files, misfits)
        left.discard(number)
        size = plan.size - sum(plan.chunks[each].stored_bytes for each in left)
        run.progress(Step("read", str(chunked.name), size, plan.size, "bytes"))

    try:
        read_chunks(
            numbers, read_chunk, chunked.staged, pace, options.parallel or local_cores(run.pipeline.spark), is_read
        )
    except SourceError as error:
        ((table, _),) = planned(wanted, [chunked.name], wanted.checkpoint)
        if same_as_planned(chunked, table, wanted.checkpoint):
            raise error.within(f"{chunked.name} cannot be read") from error
        raise VoidPlanError(error.what) from error
