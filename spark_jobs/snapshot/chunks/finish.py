"""Ends a snapshot whose chunks are all read: brings their rows to one LSN, and commits them.

Windows are captured until they hold every change that a chunk may show. Then the changes since the first chunk replace
what was read of their keys, and the table becomes what a snapshot at the end of the last window would have made of it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.transaction import AddAction

from spark_jobs.apply.landed_changes import landed_changes
from spark_jobs.apply.net_change.net_change import NetChange, net_change
from spark_jobs.apply.table_range import TableRange
from spark_jobs.capture.capture import capture_through
from spark_jobs.change_log.window_marker import WindowMarker, first_missing
from spark_jobs.errors import (
    LakeError,
    LakeInUseError,
    NeedsSnapshotError,
    PreconditionError,
    RefusedChangeError,
    UnrepresentableError,
)
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.fingerprints import insert_lsn
from spark_jobs.postgres.flushed_wal import wait_until_flushed
from spark_jobs.run import Run
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.schema.net_columns import ddl, value_fields
from spark_jobs.snapshot.chunks.chunked_table import ChunkedTable, as_planned, planned, same_as_planned
from spark_jobs.snapshot.chunks.correct import corrected
from spark_jobs.snapshot.chunks.planned_columns import AlteredTableError, ColumnsNow, VoidPlanError, are_named_alike
from spark_jobs.snapshot.chunks.read_by_key import queries_by_key
from spark_jobs.snapshot.chunks.read_plan import generation_of
from spark_jobs.snapshot.chunks.read_record import ReadSoFar, rows_of
from spark_jobs.snapshot.export import ExportedSnapshot
from spark_jobs.snapshot.planned_table import PlannedTable, TableToRead
from spark_jobs.snapshot.read_on_driver import range_threads, read_into_files
from spark_jobs.snapshot.snapshot_tables import TableSnapshot, cuts_forgotten, write_snapshot
from spark_jobs.snapshot.table_read import MisfitsRead
from spark_jobs.spark.session_conf import local_cores
from spark_jobs.tables.catalogue_changes import change_without_event
from spark_jobs.tables.understood_windows import understood_windows
from spark_jobs.writers.merge_sql import named_columns
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.with_arrow.rewritten_rows import rows_of_snapshot
from spark_jobs.writers.with_arrow.whole_table import WholeTable, WrittenFiles
from spark_jobs.writers.with_spark.staged_misfits import NotedFrame
from spark_jobs.writers.with_spark.variants import with_variants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# each time, rows that change while they are read by their keys are read again
_ATTEMPTS = 5


def finished(chunked: ChunkedTable, done: ReadSoFar) -> TableSnapshot:
    """The table's new snapshot. Raises VoidPlanError if the table must be read from the start, and what capturing,
    reading, decoding and writing raise; then what is read so far is kept."""
    work, read, plan = chunked.work, chunked.read, chunked.plan
    now = ColumnsNow(read.shape)
    doubtful: pa.Table | None = None  # after the first correction, only those rows that are read again
    for _ in range(_ATTEMPTS):
        last = _captured(work.run)
        ((table, transactions),) = planned(replace(work, checkpoint=last), [chunked.name])
        if not same_as_planned(chunked, table):
            raise AlteredTableError
        files, unknown, misfits = _corrected(chunked, done, now, last, doubtful)
        if not are_named_alike(misfits, plan.revisions):
            raise VoidPlanError("columns of values that the lake's types cannot hold were renamed or dropped")
        if not unknown.num_rows:
            done = chunked.read_into(files, done.first_window, misfits)
            return _written(chunked, table, done)
        with as_planned(chunked):
            by_key = _read_by_key(chunked, unknown)
        files, misfits = (*files, *by_key.actions), Misfits.all_of((misfits, by_key.misfits))
        log = work.run.log
        first = transactions.first_window_unseen(log, read.shape.relid, last)
        done = chunked.read_into(files, first, misfits)
        chunked.record.correct(plan, done)
        doubtful = unknown if first > last.ordinal else None
    raise LakeError(
        f"{chunked.name}: rows of it change faster than they can be read by their keys", hint="run it again"
    )


def _captured(run: Run) -> WindowMarker:
    """The change log's last window, when the log holds everything that is written now."""
    with run.source() as connection:
        end = insert_lsn(connection)
        flushed = wait_until_flushed(connection, end)
    if flushed < end:
        raise LakeError(f"the server has flushed its WAL up to {flushed} and not to {end}", hint="run it again")
    capture_through(run, flushed)
    last = run.log.checkpoint()
    assert last is not None
    assert last.window.hi >= end
    return last


def _corrected(
    chunked: ChunkedTable, done: ReadSoFar, now: ColumnsNow, last: WindowMarker, doubtful: pa.Table | None
) -> tuple[tuple[AddAction, ...], pa.Table, Misfits]:
    """The files with the rows at the end of window ``last``, without those rows whose keys are the second result.
    Third are the misfits so far."""
    staged, files, misfits = chunked.staged, done.files, done.misfits
    unknown: pa.Table | None = None
    added: tuple[AddAction, ...] = ()
    for net in map(now.net, _net_changes(chunked, done, last)):
        if net.truncated:  # the change log has all rows since
            staged.remove(added)
            files, unknown, added, misfits = (), None, (), NO_MISFITS
        outcome = corrected(staged, files, net, doubtful=doubtful, unknown=unknown)
        superseded = [file for file in added if file not in outcome.files]
        files, unknown, misfits = outcome.files, outcome.unknown, Misfits.all_of((misfits, net.misfits))
        staged.remove(superseded)
        added = tuple(file for file in (*added, *outcome.added) if file in files)
    return files, pa.table({}) if unknown is None else unknown, misfits


def _net_changes(chunked: ChunkedTable, done: ReadSoFar, last: WindowMarker) -> Iterator[NetChange]:
    """Those of the table that ``done`` does not show, up to window ``last``: each of as many windows as fit into
    memory, with the columns that the table has at its end."""
    plan, first = chunked.plan, done.first_window
    table, shows = chunked.table, chunked.table.configured.shows
    generation = Generation(Lsn(0), plan.word, (), "mirror", table.options.types, table.mask, shows=shows)
    state = TableState(chunked.name, generation, first - 1, -1, plan.relid)
    markers = [marker for marker in chunked.work.run.log.markers(first - 1) if marker.ordinal <= last.ordinal]
    attnums = frozenset(column.attnum for column in plan.columns.source)
    whole = TableRange(chunked.work.run, state, markers, columns=attnums)
    if not markers:
        return
    if (missing := first_missing(state.ordinal, markers)) is not None:
        raise VoidPlanError(f"the change log does not hold window {missing}")
    if why := change_without_event(markers, state) or understood_windows(markers, state)[1]:
        raise VoidPlanError(why.what)
    lake_columns = plan.revisions[done.revision].in_lake
    for part in _parts(whole):
        try:
            landed = landed_changes(part, lake_columns) if part.concerns_table() else None
        except (NeedsSnapshotError, PreconditionError, RefusedChangeError) as error:
            raise VoidPlanError(error.what) from error
        if landed is None:
            continue
        lake_columns = tuple(map(DeltaColumn.of, landed.shape.columns))
        try:
            net = net_change(landed.rows, replace(landed.rules, lenient=True))
        except NeedsSnapshotError as error:
            raise VoidPlanError(error.what) from error
        except UnrepresentableError as error:
            if len(plan.revisions) == 1:
                raise
            raise VoidPlanError(error.what) from error  # of a column that may be gone by now
        yield net


def _parts(whole: TableRange) -> Iterator[TableRange]:
    """Ranges of windows whose net change this process computes. Raises VoidPlanError for a window that is too large."""
    waiting: list[WindowMarker] = []
    for marker in whole.markers:
        part = replace(whole, markers=(*waiting, marker))
        if part.is_small:
            waiting.append(marker)
            continue
        if waiting:
            yield replace(whole, markers=tuple(waiting))
        waiting = [marker]
        if not replace(whole, markers=(marker,)).is_small:
            raise VoidPlanError(f"window {marker.ordinal} holds too many changes of it for this process's memory")
    if waiting:
        yield replace(whole, markers=tuple(waiting))


def _read_by_key(chunked: ChunkedTable, keys: pa.Table) -> WrittenFiles:
    """The rows with these keys, as they are now."""
    with chunked.work.run.source() as connection:
        queries = tuple(queries_by_key(connection, chunked.table, keys))
    read = replace(chunked.read, tasks=(queries,))
    reader, noted = read.task_reader(chunked.table.source), MisfitsRead()
    return replace(chunked.staged.write(reader(0, noted.note)), misfits=noted.found)


@dataclass(frozen=True)
class _StagedRows:
    """The rows in the staged files, which are those of the table at the snapshot's LSN."""

    chunked: ChunkedTable
    table: PlannedTable
    done: ReadSoFar

    def target(self, provenance: Provenance, _: TableState | None) -> WholeTable | None:
        plan = self.chunked.plan
        if generation_of(self.chunked.table.state()) != plan.generation:
            raise LakeInUseError(f"another process has taken a snapshot of {plan.name}", hint="run it again")
        if plan.columns.writer == "spark":
            return None
        target = WholeTable.of(self.chunked.table.path, self.table.written, provenance)
        written = None if target is None else target.for_files(plan.columns.physical, plan.columns.ids)
        if written is None:
            raise VoidPlanError("somebody has replaced its Delta table")
        return written

    def files(self, target: WholeTable) -> WrittenFiles:
        staged = self.done.files
        if not self.chunked.commit_columns:
            return WrittenFiles(staged, rows_of(staged), self.done.misfits)

        def read_file(number: int) -> Generator[pa.RecordBatch, None, None]:
            for rows in self.chunked.staged.batches(staged[number]):
                yield rows_of_snapshot(rows, self.table.form, self.table.moment)

        with range_threads(local_cores(self.table.work.pipeline.spark)) as threads:
            files = read_into_files(len(staged), read_file, target.path, target.layout, threads)
        return replace(files, misfits=self.done.misfits)

    def frame(self, spark: SparkSession) -> NotedFrame:
        shape, folder = self.chunked.read.shape, self.chunked.staged.path
        schema = ddl(value_fields(shape))
        paths = [f"{folder}/{file.path}" for file in self.done.files]
        rows = spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)
        stored = with_variants(rows, shape.columns).selectExpr(*named_columns(shape.columns))
        return NotedFrame(stored, lambda: self.done.misfits)


def _written(chunked: ChunkedTable, now: TableToRead, done: ReadSoFar) -> TableSnapshot:
    """``now``: the table as it is at the end of the last window that was captured."""
    exported = ExportedSnapshot(None, now.work.checkpoint.window.hi)
    table = PlannedTable(now.work, exported, now.name, now.seen, chunked.read, chunked.plan.began)
    chunked.record.hide()
    with cuts_forgotten(table.work.run, [table.name]):
        snapshot = write_snapshot(table, _StagedRows(chunked, table, done))
    chunked.record.remove()
    return snapshot
