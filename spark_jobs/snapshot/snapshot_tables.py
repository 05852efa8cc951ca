"""Takes snapshots of tables at one LSN: ctid ranges of an exported snapshot are read at once; one commit per table.

This process reads and writes them, in threads, where Spark is on this machine or the table is small. Executors of a
cluster do it for large tables, and Spark for what only Spark can write.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import pyarrow as pa

from spark_jobs.errors import CdcError
from spark_jobs.lake.cuts import forget
from spark_jobs.lake.table_state import TableState, records_of
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import holds_changes
from spark_jobs.postgres.connection import Connection
from spark_jobs.progress import Step
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_overtaken
from spark_jobs.run import Run
from spark_jobs.schema.misfits import Misfits
from spark_jobs.snapshot.export import ExportedSnapshot
from spark_jobs.snapshot.planned_table import PlannedTable, TableToRead, look
from spark_jobs.snapshot.read_on_driver import RangeThreads, range_threads, read_into_files
from spark_jobs.snapshot.read_progress import as_they_end, cancelled_on_error, read_progress
from spark_jobs.snapshot.snapshot_work import SnapshotWork
from spark_jobs.snapshot.table_read import MisfitsRead, SnapshotSource
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session_conf import INTERPRETED, local_cores
from spark_jobs.writers.annotated_table import annotate_table
from spark_jobs.writers.table_commit import Provenance, commit_without_rows, committed_version, committing_session
from spark_jobs.writers.with_arrow.leftovers import files_without_table, remove_files
from spark_jobs.writers.with_arrow.rewritten_rows import rows_of_snapshot, with_snapshot
from spark_jobs.writers.with_arrow.whole_table import WholeTable, WrittenFiles
from spark_jobs.writers.with_spark.arranged_table import rewriting
from spark_jobs.writers.with_spark.delta_table import replace_table, rows_written, table_at, with_metadata
from spark_jobs.writers.with_spark.past_rows import rows_with_past, snapshot_rows
from spark_jobs.writers.with_spark.staged_misfits import NotedFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_TABLES_AT_ONCE = 2
_NO_LSN = Lsn(0)
# the exported snapshot ended with its process, and no other one shows the same rows
_STARTED_OVER = "%s: an earlier snapshot was cut off; %d files of it are removed"


@dataclass(frozen=True)
class TableSnapshot:
    """One table's snapshot: the table's new state and its number of rows, or the ``error`` that left it untouched.

    ``reason``: why an automatic snapshot was taken; empty for a requested or a first one. ``lost``: columns that the
    table had kept after the source dropped them, and has no longer.
    """

    name: QualifiedName
    lsn: Lsn = _NO_LSN
    relid: int = 0
    rows: int = 0
    state: TableState | None = None
    error: CdcError | None = None
    reason: str = ""
    lost: tuple[str, ...] = ()


@contextmanager
def cuts_forgotten(run: Run, names: Sequence[QualifiedName]) -> Iterator[None]:
    """While the tables' versions of before are replaced, and afterwards, no cut names them."""
    with run.guard.cuts():
        forget(run.pipeline.lake, names)
    yield
    with run.guard.cuts():  # a concurrent run may have written a cut with the old tables
        forget(run.pipeline.lake, names)


def snapshot_tables(
    work: SnapshotWork, exported: ExportedSnapshot, connection: Connection
) -> tuple[TableSnapshot, ...]:
    """Replace or create the Delta tables of ``work``, all at one LSN; each begins a new generation.

    ``connection`` uses the snapshot ``exported``. Only the columns and rows that its publications send are read of a
    table. A table that fails is reported with its error and keeps its rows; the others are unaffected.
    """
    assert exported.snapshot_name is not None
    done: dict[QualifiedName, TableSnapshot] = {}
    seen = look(connection, work)
    tables = [_planned(TableToRead(work, exported, name, seen[name])) for name in work.names]
    possible = {table.name: table.read for table in tables if isinstance(table, PlannedTable)}
    with (
        read_progress(work.pipeline.source.dsn, exported.snapshot_name, possible, work.run.progress) as reading,
        ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="snapshot") as pool,
        range_threads(local_cores(work.pipeline.spark)) as threads,
    ):
        running = {pool.submit(_snapshot_table, table, threads) for table in tables}
        with cancelled_on_error(running):
            for snapshot in (future.result() for future in as_they_end(running, reading)):
                done[snapshot.name] = snapshot
                reading.ended(snapshot.name)
                text = f"{snapshot.name}, {snapshot.rows:,} rows"
                work.run.progress(Step("snapshot", text, len(done), len(work.names), "tables"))
    return tuple(done[name] for name in work.names)


def _planned(table: TableToRead) -> PlannedTable | TableSnapshot:
    try:
        return PlannedTable.of(table)
    except CdcError as error:
        return _failed(table, error)


def _snapshot_table(table: PlannedTable | TableSnapshot, threads: RangeThreads) -> TableSnapshot:
    """``threads`` read the table if this process reads it itself."""
    if isinstance(table, TableSnapshot):
        return table
    try:
        return write_snapshot(table, _ExportedRows(table, threads))
    except CdcError as error:
        return _failed(table, error)


def _failed(table: TableToRead, error: CdcError) -> TableSnapshot:
    facts = table.seen.facts
    return TableSnapshot(table.name, table.exported.lsn, facts.relid if facts else 0, error=error)


class SnapshotRows(Protocol):
    """All rows of a table at the LSN of its snapshot."""

    def target(self, provenance: Provenance, before: TableState | None, /) -> WholeTable | None:
        """The table to be written with ``files``; None if Spark must write it. ``before``: its state."""
        ...

    def files(self, target: WholeTable, /) -> WrittenFiles | None:
        """The rows in data files of the table, which no version names yet; None if Spark must write them after all.
        Raises CdcError."""
        ...

    def frame(self, spark: SparkSession) -> NotedFrame:
        """The rows with the Delta table's column names and types."""
        ...


@dataclass(frozen=True)
class _ExportedRows:
    """The rows that the exported snapshot shows."""

    table: PlannedTable
    threads: RangeThreads

    def target(self, provenance: Provenance, before: TableState | None) -> WholeTable | None:
        table = self.table
        target = None
        if table.writer == "deltalake":
            target = WholeTable.of(table.path, table.written, provenance)
        if target is None or before is None or not table.goes_on_from(before):
            return target
        stay = holds_changes(table.form.mode) and not target.has_other_columns
        return replace(target, keeps="all" if stay else "some", by_number=table.is_of_same_table(before))

    def files(self, target: WholeTable) -> WrittenFiles | None:
        table = self.table
        if target.keeps == "some":
            return self._with_past(target)
        reader = table.read.task_reader(table.source)

        noted: dict[int, MisfitsRead] = {}

        def read_task(task: int) -> Generator[pa.RecordBatch, None, None]:
            noted[task] = MisfitsRead()  # also if it is read again
            with closing(reader(task, noted[task].note)) as batches:
                for rows in batches:
                    yield rows_of_snapshot(rows, table.form, table.moment)

        files = read_into_files(len(table.read.tasks), read_task, target.path, target.layout, self.threads)
        return replace(files, misfits=Misfits.all_of(noted[task].found for task in sorted(noted)))

    def _with_past(self, target: WholeTable) -> WrittenFiles | None:
        """With the table's past rows, in memory."""
        table, read = self.table, MisfitsRead()
        rows = table.read.values_on_driver(table.source, read.note)
        table_rows = None if rows is None else target.all_rows(table.work.pipeline.writes)
        if rows is None or table_rows is None:
            return None
        (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        now = pa.Table.from_batches([rows_of_snapshot(batch, table.form, table.moment)])
        all_rows = with_snapshot(table_rows, now, table.written, table.form.mode, table.moment)
        return replace(target.written(all_rows), misfits=read.found)

    def frame(self, spark: SparkSession) -> NotedFrame:
        source = SnapshotSource.anywhere(self.table.work.pipeline, self.table.exported.snapshot_name)
        return self.table.read.noted_rows(spark, source)


@again_when_overtaken
def write_snapshot(table: PlannedTable, rows: SnapshotRows) -> TableSnapshot:
    """Write the table, in one commit. Raises OvertakenError when another writer of ours commits in between."""
    path, lake = table.path, table.work.pipeline.lake
    with table.work.run.guard.table(table.name):
        before = table.state()
        if before is not None:
            table.require_accepted(before)
            records_of(lake, before, table.work.checkpoint.identity).add(before.unrepresentable.file)
        provenance = table.provenance(before)
        left = files_without_table(path) if before is None else ()
        target = rows.target(provenance, before)
        written = None if target is None else _written_files(table, rows, target)
        if target is not None and written is not None:
            misfits, count = written.misfits.at(table.exported.lsn), written.rows
            with provenance.recording(lake, table.name, misfits) as recorded:
                version = target.commit(written.actions, count, recorded)
            names = frozenset(action.path.rpartition("/")[2] for action in written.actions)
        else:
            version, count = _written_by_spark(table, rows, before, provenance)
            names = frozenset[str]()
        unused = [file for file in left if file.rpartition("/")[2] not in names] if version == 0 else []
        if unused and isinstance(rows, _ExportedRows):  # chunks are replaced where their rows have changed
            _log.warning(_STARTED_OVER, table.name, len(unused))
        remove_files(path, unused)
        since = table.state()
    lost = tuple(column.attname for column in before.differing.kept) if before is not None else ()
    relid = table.read.shape.relid
    return TableSnapshot(table.name, table.exported.lsn, relid, count, since, reason=table.reason, lost=lost)


def _written_files(table: PlannedTable, rows: SnapshotRows, target: WholeTable) -> WrittenFiles | None:
    with _naming(table):
        return rows.files(target)


@contextmanager
def _naming(table: PlannedTable) -> Iterator[None]:
    """Errors name the table, and the LSN."""
    try:
        yield
    except CdcError as error:
        raise error.within(table.failed) from error


def _written_by_spark(
    table: PlannedTable, rows: SnapshotRows, before: TableState | None, provenance: Provenance
) -> tuple[int, int]:
    """The Delta version and its number of rows."""
    spark, path, read = table.work.run.spark(), table.path, table.read
    with (
        spark_errors(table.failed, name=table.name, path=path),
        rewriting(spark, path, table.options.layout, read.shape.columns),
        committing_session(spark, path, provenance, by_any=True, creates=before is None) as own,
    ):
        noted = rows.frame(own)
        rows_read = noted.rows
        if before is not None and table.goes_on_from(before):
            with _naming(table):
                by_number = table.is_of_same_table(before)
                all_rows = rows_with_past(rows_read, path, read.shape, table.form, table.moment, by_number=by_number)
        else:
            for key, setting in INTERPRETED.items() if read.is_small else ():
                own.conf.set(key, setting)
            all_rows = snapshot_rows(rows_read, table.form, table.moment)
        old_table = None if before is None else table_at(own, path)
        frame = with_metadata(all_rows, read.shape.columns, table.form, table.annotations, old_table)
        replace_table(frame, path, table.options.layout)
        version = committed_version(own, path, provenance)
        misfits = noted.misfits().at(table.exported.lsn)
        if misfits:  # Spark has only counted them when it had written the rows
            again = replace(provenance, commits=provenance.commits + 1, id=uuid4().hex)
            with again.recording(table.work.pipeline.lake, table.name, misfits) as recorded:
                commit_without_rows(spark, path, recorded)
    count = rows_written(path, version)
    if table.annotations is not None:  # a write cannot describe the table
        with spark_errors(table.failed, name=table.name, path=path):
            annotate_table(path, table.annotations, lambda: spark)
    return version, count
