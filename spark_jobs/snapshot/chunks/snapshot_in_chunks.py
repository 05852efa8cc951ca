"""One table read in chunks: those that are missing, then what changed meanwhile. DDL that rewrites it begins again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from spark_jobs.decode.threads import in_threads
from spark_jobs.errors import CdcError, SnapshotGoesOnError
from spark_jobs.postgres.connection import connected
from spark_jobs.progress import Step
from spark_jobs.snapshot.chunks.adoption import Adoption, void_if_changed
from spark_jobs.snapshot.chunks.chunk_readers import (
    CHUNKS_ON_EXECUTORS,
    ChunkReader,
    Pace,
    read_on_driver,
    read_on_executors,
)
from spark_jobs.snapshot.chunks.chunked_table import ChunkedTable, as_planned, chunked_tables
from spark_jobs.snapshot.chunks.finish import finished
from spark_jobs.snapshot.chunks.planned_columns import AlteredTableError, ColumnsNow, VoidPlanError
from spark_jobs.snapshot.chunks.read_record import ReadSoFar, RecordedFiles
from spark_jobs.snapshot.read_on_driver import range_threads, read_tasks
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.snapshot.snapshot_work import require_same_server
from spark_jobs.spark.session import isolated_session
from spark_jobs.spark.session_conf import local_cores, runs_on_driver
from spark_jobs.writers.with_arrow.whole_table import WrittenFiles

_log = logging.getLogger(__name__)


def snapshot_in_chunks(chunked: ChunkedTable, pace: Pace) -> TableSnapshot:
    while True:
        try:
            return _read_on(chunked, pace)
        except VoidPlanError as void:
            _log.warning("%s is read from the start: %s", chunked.name, void)
            chunked.record.void(chunked.plan)
            why = str(void)
        except AlteredTableError:
            why = "it was altered"
        except CdcError as error:
            return TableSnapshot(chunked.name, relid=chunked.plan.relid, error=error, reason=chunked.table.reason)
        again, errors = chunked_tables(chunked.work, [chunked.name])
        if not again:
            in_one = SnapshotGoesOnError(
                f"{chunked.name} cannot be read in chunks: {why}", hint="the next run reads it in one transaction"
            )
            failed = errors.get(chunked.name, in_one)
            return TableSnapshot(chunked.name, error=failed, reason=chunked.table.reason)
        chunked = again[0]


def _read_on(chunked: ChunkedTable, pace: Pace) -> TableSnapshot:
    """Read chunks until all are read or the time is over. Raises SnapshotGoesOnError in the second case."""
    work, table = chunked.work, chunked.table
    with work.run.guard.table(chunked.name):
        if (before := table.state()) is not None:
            table.require_accepted(before)
        with connected(work.pipeline.source.dsn) as connection:
            require_same_server(connection, work)
        chunked.keep_plan()
        done = _converted(chunked, _all_read(chunked, pace))
    return finished(chunked, done)


def _all_read(chunked: ChunkedTable, pace: Pace) -> ReadSoFar:
    """Read what is missing. Raises SnapshotGoesOnError if the time is over before all is read."""
    plan, record = chunked.plan, chunked.record
    while True:
        _read_pieces(chunked, pace)
        if left := len(record.unread(plan)):
            so_far = f"; query those in {chunked.staged.folder}" if chunked.is_partial else ""
            raise SnapshotGoesOnError(
                f"{plan.pieces - left:,} of {plan.pieces:,} chunks of {chunked.name} are read",
                hint=f"the next run reads the others{so_far}",
            )
        done = record.chunks(plan)
        if not (parts := [part for part in done.parts if chunked.staged_before(part.revision).missing(part.files)]):
            return done
        if done.is_corrected:
            raise VoidPlanError("files that it was read into are gone")
        record.forget(parts)


def _converted(chunked: ChunkedTable, done: ReadSoFar) -> ReadSoFar:
    """The same rows with the columns that the table has now, as far as they were read with others. Raises
    VoidPlanError."""
    plan, record = chunked.plan, chunked.record
    others = [part for part in done.parts if plan.revisions[part.revision] != plan.columns]
    if not others:
        return done
    now = ColumnsNow(chunked.read.shape)

    def convert(part: RecordedFiles) -> RecordedFiles:
        before = chunked.staged_before(part.revision)
        numbers = [column.attnum for column in before.shape.columns]
        batches = (now.rows(rows, numbers) for file in part.files for rows in before.batches(file))
        files = chunked.staged.write(batches).actions
        if not done.is_corrected:
            record.convert(plan, part, files)
        return replace(part, files=files, revision=len(plan.revisions) - 1)

    changed = {part.name: part for part in in_threads(convert, others)}
    done = replace(done, parts=tuple(changed.get(part.name, part) for part in done.parts))
    if done.is_corrected:
        record.correct(plan, done)
    return done


def _read_pieces(chunked: ChunkedTable, pace: Pace) -> None:
    plan, record = chunked.plan, chunked.record
    unread = record.unread(plan)
    chunks = [number for number in unread if number < len(plan.chunks)]
    if not (plan.adopted and unread):
        with _reader(chunked, pace) as read:
            _read(chunked, chunks, read, pace)
        return
    with void_if_changed(chunked):
        adoption = Adoption.of(chunked)
        _read(chunked, chunks, read_on_driver(adoption.reader(pace), chunked.staged, pace), pace)
        if record.unread(plan) == (len(plan.chunks),):
            record.add(plan, len(plan.chunks), adoption.write())
            adoption.forget()


def _read(chunked: ChunkedTable, numbers: Sequence[int], read: ChunkReader, pace: Pace) -> None:
    run, plan, record = chunked.work.run, chunked.plan, chunked.record
    options = run.pipeline.snapshot
    left, shown = set(numbers), chunked.shown(numbers) if numbers else None
    detail = f"{chunked.name}, so far in {shown.path}" if shown is not None else str(chunked.name)

    def is_read(number: int, files: WrittenFiles) -> None:
        record.add(plan, number, files)
        if shown is not None:
            shown.add(files.actions)
        left.discard(number)
        size = plan.size - sum(plan.chunks[each].stored_bytes for each in left)
        run.progress(Step("read", detail, size, plan.size, "bytes", chunked.name))

    cores = local_cores(run.pipeline.spark) if runs_on_driver(run.pipeline.spark) else CHUNKS_ON_EXECUTORS
    with as_planned(chunked), range_threads(options.parallel or cores) as threads:
        read_tasks(numbers, read, threads, is_read, lambda: pace.is_over)
    if shown is not None:
        shown.commit()
        chunked.keep_shown(shown, left)


@contextmanager
def _reader(chunked: ChunkedTable, pace: Pace) -> Iterator[ChunkReader]:
    pipeline = chunked.work.pipeline
    # files of executors have other names of columns than the table's own, which this process writes
    if runs_on_driver(pipeline.spark) or chunked.plan.columns.writer == "deltalake":
        yield read_on_driver(chunked.read.task_reader(chunked.table.source), chunked.staged, pace)
        return
    with isolated_session(chunked.work.run.spark(), {}) as own:
        yield read_on_executors(own, chunked, pace)
