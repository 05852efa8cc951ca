"""Takes snapshots of tables at one LSN: ctid ranges of an exported snapshot are read at once; one commit per table.

This process reads and writes them, in threads, where Spark is on this machine or the table is small. Executors of a
cluster do it for large tables, and Spark for what only Spark can write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.column_options import ChosenTypes
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.lake.delta_table import replace_table, rows_written, with_attribute_numbers
from spark_jobs.lake.leftovers import files_without_table, remove_files
from spark_jobs.lake.past_rows import Moment, rows_with_past, snapshot_rows
from spark_jobs.lake.table_commit import Provenance, committed_version, committing_session, overtaking
from spark_jobs.lake.table_state import TableState, generation_of, table_state
from spark_jobs.lake.whole_table import WholeTable
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection, clock_microseconds, conninfo
from spark_jobs.postgres.fingerprints import Watched, fingerprint_words
from spark_jobs.postgres.published_tables import PublishedTable, published_tables
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_overtaken
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_faults import mode_fault, option_fault
from spark_jobs.snapshot.export import CtidRange, ExportedSnapshot, ctid_ranges, exported_snapshot
from spark_jobs.snapshot.pace import next_cause
from spark_jobs.snapshot.read_here import RangeThreads, is_read_here, range_threads, read_into_files
from spark_jobs.snapshot.read_progress import as_they_end, cancelled_on_error, read_progress
from spark_jobs.snapshot.table_read import TableRead, TaskReader
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.provider import SparkProvider, one_at_a_time
from spark_jobs.spark.session_conf import INTERPRETED, local_cores
from spark_jobs.table_mode import Mode
from spark_jobs.write_guard import WriteGuard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RANGE_BYTES = 64 << 20  # each task costs 0.3 s of a core and writes a file; with a quarter of this, 1.3 times as long
_TABLES_AT_ONCE = 2
_DELTA_SETTINGS = "spark.databricks.delta."


@dataclass(frozen=True)
class SnapshotWork:
    """The tables to take snapshots of, and what their new generations are made from.

    ``checkpoint``: the newest window that was landed before the snapshot is exported. The snapshot shows all of it, and
    what its look at the catalogue saw; applying continues with the next one. A window that is landed later may end
    before the snapshot and look at the catalogue after it: its look counts, while its rows are skipped.
    ``check_exporter`` raises a CdcError if another server has exported the snapshot. ``watched``: what the tables'
    fingerprints cover. ``reasons``: why, for automatic snapshots: a change that cannot be followed in place, or a break
    in the log.
    """

    pipeline: Pipeline
    names: tuple[QualifiedName, ...]
    checkpoint: WindowMarker
    check_exporter: Callable[[], None]
    watched: Watched
    reasons: Mapping[QualifiedName, str] = field(default_factory=dict)
    run_id: str = ""


@dataclass(frozen=True)
class TableSnapshot:
    """One table's snapshot: the table's new state and its number of rows, or the ``error`` that left it untouched.

    ``reason``: why an automatic snapshot was taken; empty for a requested or a first one.
    """

    name: QualifiedName
    lsn: Lsn
    relid: int = 0
    rows: int = 0
    state: TableState | None = None
    error: CdcError | None = None
    reason: str = ""


def snapshot_tables(
    spark: SparkProvider, work: SnapshotWork, *, guard: WriteGuard, progress: Progress = silent
) -> tuple[TableSnapshot, ...]:
    """Replace or create the Delta tables of ``work``, all at one LSN; each begins a new generation.

    Only the columns and rows that its publications send are read of a table. ``guard`` keeps other processes from a
    table while it is written. A table that fails is reported with its error and keeps its rows; the others are
    unaffected. Raises SourceError or one of its subclasses when no snapshot can be exported.
    """
    if not work.names:
        return ()
    done: dict[QualifiedName, TableSnapshot] = {}
    with exported_snapshot(work.pipeline.source.dsn) as (exported, connection):
        work.check_exporter()
        seen = _seen(connection, work)
        tables = [_Table(work, exported, name, seen) for name in work.names]
        reads = {table.name: table.read() for table in tables}
        possible = {name: read for name, read in reads.items() if isinstance(read, TableRead)}
        with (
            read_progress(work.pipeline.source.dsn, exported.snapshot_name, possible, progress) as reading,
            ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="snapshot") as pool,
            range_threads(local_cores(work.pipeline.spark)) as threads,
        ):
            writer = _Writer(one_at_a_time(spark), threads, guard)
            running = {pool.submit(_snapshot_table, writer, table, reads[table.name]) for table in tables}
            with cancelled_on_error(running):
                for taken in (future.result() for future in as_they_end(running, reading)):
                    done[taken.name] = taken
                    reading.ended(taken.name)
                    text = f"{taken.name}, {taken.rows:,} rows"
                    progress(Step("snapshot", text, len(done), len(work.names), "tables"))
    return tuple(done[name] for name in work.names)


@dataclass(frozen=True)
class _Seen:
    """The tables as the exported snapshot shows them; what is altered later shows in the next fingerprint."""

    at: int  # the server's clock, in microseconds since 1970, UTC
    words: Mapping[QualifiedName, tuple[int, str]]
    published: Mapping[QualifiedName, PublishedTable]
    facts: Mapping[QualifiedName, RelationFacts]
    ranges: Mapping[QualifiedName, tuple[CtidRange, ...]]


def _seen(connection: Connection, work: SnapshotWork) -> _Seen:
    watched = work.watched
    words = fingerprint_words(connection, watched)
    published = published_tables(connection, watched.publications, work.names) if watched.publications else {}
    found = relation_facts(connection, names=work.names, keys=watched.keys, masks=watched.masks)
    facts = {table.name: table for table in found}
    ranges = {name: ctid_ranges(connection, known.relid, _RANGE_BYTES) for name, known in facts.items()}
    return _Seen(clock_microseconds(connection), words, published, facts, ranges)


@dataclass(frozen=True)
class _Table:
    """One table of ``work``, to be read in ``exported``."""

    work: SnapshotWork
    exported: ExportedSnapshot
    name: QualifiedName
    seen: _Seen

    @property
    def sent(self) -> PublishedTable | None:
        return self.seen.published.get(self.name)

    def read(self) -> TableRead | CdcError:
        """Plan the read; a PreconditionError when the table does not exist or cannot be followed."""
        try:
            return self._read()
        except CdcError as error:
            return error

    def _read(self) -> TableRead:
        ranges = self.seen.ranges.get(self.name, ())
        facts, options = self.seen.facts.get(self.name), self.work.pipeline.column_options(self.name)
        described, mask = facts and with_options(facts, options), self.work.watched.masks.get(self.name)
        read = TableRead.of(self.name, described, ranges, self.sent, mask=mask)
        sent = [column.name for column in read.shape.columns]
        if facts and (fault := mode_fault(facts, sent, self.mode) or option_fault(facts, sent, options, self.mode)):
            raise fault.error
        return read

    @property
    def mode(self) -> Mode:
        return self.work.pipeline.mode_of(self.name)

    def goes_on_from(self, before: TableState) -> bool:
        """Whether the table's history is kept: its mode keeps one, and mode, types and masks are as in ``before``."""
        same = (before.mode, before.types, before.mask) == (self.mode, self.types, self.mask)
        return same and self.mode != "mirror"

    @property
    def types(self) -> ChosenTypes:
        return self.work.pipeline.table(self.name).options.types

    @property
    def mask(self) -> str:
        """The word of the table's masks, empty without any."""
        facts = self.seen.facts.get(self.name)
        return facts.mask if facts is not None else ""

    @property
    def path(self) -> str:
        return self.work.pipeline.lake.table(self.name)

    @property
    def failed(self) -> str:
        return f"{self.name}: snapshot at {self.exported.lsn} failed"

    def may_be_written_here(self, read: TableRead) -> bool:
        """Whether this process may read and write it. A user's settings for new Delta tables are Spark's to follow."""
        options = self.work.pipeline.spark
        is_plain = self.mode == "mirror" and not any(key.startswith(_DELTA_SETTINGS) for key, _ in options.config)
        return is_plain and is_read_here(read, options)

    def task_reader(self, read: TableRead) -> TaskReader:
        pipeline = self.work.pipeline
        source, snapshot_name = conninfo(pipeline.source.dsn), self.exported.snapshot_name
        return read.task_reader(source, snapshot_name, pipeline.on_unrepresentable)

    @property
    def moment(self) -> Moment:
        return Moment(self.exported.lsn, self.seen.at)

    def state(self) -> TableState | None:
        """The Delta table as it is now."""
        return table_state(self.work.pipeline.lake, self.name, *self.work.checkpoint.identity.stream)

    def provenance(self, relid: int, before: TableState | None) -> Provenance:
        """The provenance of the commit that replaces the state ``before``."""
        _, word = self.seen.words.get(self.name, (0, ""))
        missing = self.sent.missing_operations if self.sent is not None else ()
        return Provenance(
            *self.work.checkpoint.identity.stream,
            generation_of(self.exported.lsn, word, missing, self.mode, self.types, self.mask),
            snapshot_lsn=self.exported.lsn,
            first=self.work.checkpoint.ordinal,
            last=self.work.checkpoint.ordinal,
            lo=self.exported.lsn,
            hi=self.exported.lsn,
            relid=relid,
            commits=before.commits + 1 if before else 1,
            run_id=self.work.run_id,
            cause=next_cause(before.cause if before else None, self.reason) if self.reason else None,
        )

    @property
    def reason(self) -> str:
        return self.work.reasons.get(self.name, "")


@dataclass(frozen=True)
class _Writer:
    """``threads`` read the tables that this process reads itself."""

    spark: SparkProvider
    threads: RangeThreads
    guard: WriteGuard


def _snapshot_table(writer: _Writer, table: _Table, read: TableRead | CdcError) -> TableSnapshot:
    try:
        if isinstance(read, CdcError):
            raise read
        return _written(writer, table, read)
    except CdcError as error:
        facts = table.seen.facts.get(table.name)
        return TableSnapshot(table.name, table.exported.lsn, facts.relid if facts else 0, error=error)


@again_when_overtaken
def _written(writer: _Writer, table: _Table, read: TableRead) -> TableSnapshot:
    """Write the table. Raises OvertakenError when another writer of ours commits in between."""
    path = table.path
    with writer.guard.table(table.name):
        before = table.state()
        provenance = table.provenance(read.shape.relid, before)
        left = files_without_table(path) if before is None else ()
        target = WholeTable.of(path, read.shape, provenance) if table.may_be_written_here(read) else None
        if target is not None:
            version, rows = _written_here(writer, table, read, target, provenance)
        else:
            version, rows = _written_by_spark(writer.spark(), table, read, before, provenance)
        remove_files(path, left if version == 0 else ())
        since = table.state()
    return TableSnapshot(table.name, table.exported.lsn, read.shape.relid, rows, since, reason=table.reason)


def _written_here(
    writer: _Writer, table: _Table, read: TableRead, target: WholeTable, provenance: Provenance
) -> tuple[int, int]:
    """The Delta version and its number of rows."""
    try:
        written = read_into_files(read, table.task_reader(read), target.path, target.layout, writer.threads)
    except CdcError as error:
        raise error.within(table.failed) from error
    return target.commit(written.actions, written.rows, provenance), written.rows


def _written_by_spark(
    spark: SparkSession, table: _Table, read: TableRead, before: TableState | None, provenance: Provenance
) -> tuple[int, int]:
    """The Delta version and its number of rows."""
    pipeline, path = table.work.pipeline, table.path
    with (
        spark_errors(table.failed),
        overtaking(path, by_any=True, creates=before is None),
        committing_session(spark, provenance) as own,
    ):
        source = conninfo(pipeline.source.dsn)
        rows_read = read.rows(own, source, table.exported.snapshot_name, pipeline.on_unrepresentable)
        if before is not None and table.goes_on_from(before):
            all_rows = rows_with_past(rows_read, path, read.shape, table.mode, table.moment)
        else:
            for key, setting in INTERPRETED.items() if read.is_small else ():
                own.conf.set(key, setting)
            all_rows = snapshot_rows(rows_read, table.mode, table.moment)
        replace_table(with_attribute_numbers(all_rows, read.shape.columns, table.mode), path)
        version = committed_version(own, path)
        return version, rows_written(path, version)
