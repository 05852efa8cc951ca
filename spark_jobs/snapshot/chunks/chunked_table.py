"""Which tables are read in chunks, and each by which plan: one that another process has begun, or a new one."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import CdcError
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.connection import Connection, connected, source_errors
from spark_jobs.postgres.table_sizes import table_sizes
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.adopted.copied_table import CopiedTable, not_adopted
from spark_jobs.snapshot.chunks.read_by_key import has_readable_key
from spark_jobs.snapshot.chunks.read_plan import ReadPlan, ReadRecord, generation_of
from spark_jobs.snapshot.chunks.staged_files import StagedFiles
from spark_jobs.snapshot.chunks.transactions_seen import TransactionsSeen
from spark_jobs.snapshot.export import ExportedSnapshot
from spark_jobs.snapshot.planned_table import PlannedTable, Seen, SnapshotWork, look
from spark_jobs.snapshot.table_read import TableRead
from spark_jobs.snapshot.wanted_snapshots import WantedSnapshots
from spark_jobs.spark.session_conf import runs_on_driver
from spark_jobs.table_mode import CommitColumn, keeps_past
from spark_jobs.writers.whole_table import WholeTable
from spark_jobs.writers.write_choice import Engine

_log = logging.getLogger(__name__)

# a table that is altered again and again is read in one exported snapshot in the end
_VOID_PLANS = 3
_OWN_SNAPSHOTS = ExportedSnapshot(None, Lsn(0))


class VoidPlanError(Exception):
    """What is read of the table is of no use: the reason."""


@dataclass(frozen=True)
class ChunkedTable:
    """A table that is read in chunks: ``table`` and ``read`` as they are now, with the ranges of ``plan``. ``is_new``:
    nothing is read by this plan yet."""

    table: PlannedTable
    read: TableRead
    plan: ReadPlan
    is_new: bool

    @property
    def name(self) -> QualifiedName:
        return self.table.name

    @property
    def record(self) -> ReadRecord:
        return ReadRecord(self.table.work.pipeline.lake, self.name)

    @property
    def staged(self) -> StagedFiles:
        """Commit columns are added to the rows in the end, when the snapshot's LSN is known."""
        return StagedFiles.of(
            self.plan, self.read.shape, table=self.table.path, aside=self.record.folder, whole=not self.commit_columns
        )

    @property
    def commit_columns(self) -> tuple[CommitColumn, ...]:
        return self.table.form.commit_columns


def large_tables(wanted: WantedSnapshots) -> tuple[QualifiedName, ...]:
    """Those of the tables that do not fit into one chunk, and those that adopt rows. Executors of a cluster read large
    tables in one snapshot."""
    pipeline = wanted.run.pipeline
    adopting = tuple(
        name
        for name in wanted.names
        if pipeline.table(name).adopt and table_state(pipeline.lake, name, *wanted.checkpoint.identity.stream) is None
    )
    if not runs_on_driver(pipeline.spark):
        return adopting
    with connected(pipeline.source.dsn) as connection:
        sizes = pipeline.by_name(wanted.names, table_sizes(connection, pipeline.relations(wanted.names)))
    read = [name for name in wanted.names if name in sizes and not pipeline.table(name).begins_empty]
    large = (name for name in read if sizes[name].bytes > pipeline.snapshot.chunk_bytes)
    return tuple(dict.fromkeys((*adopting, *large)))


def chunked_tables(
    wanted: WantedSnapshots, names: Sequence[QualifiedName]
) -> tuple[tuple[ChunkedTable, ...], dict[QualifiedName, CdcError]]:
    """Those of ``names`` that can be read in chunks, and the errors of those that cannot be read at all."""
    found: list[ChunkedTable] = []
    errors: dict[QualifiedName, CdcError] = {}
    for table, transactions in planned(wanted, names, wanted.checkpoint):
        read = table.read()
        if isinstance(read, CdcError):
            errors[table.name] = read
        elif has_readable_key(read) and not (table.sent and table.sent.missing_operations):
            try:
                chunked = _chunked(table, read, transactions, wanted.checkpoint)
            except CdcError as error:
                errors[table.name] = error
            else:
                found += [chunked] if chunked is not None else []
        elif (adopted := table.adopts) is not None:
            why = "no row of it can be read by its key, or not all of its changes are published"
            errors[table.name] = not_adopted(table.name, adopted.path, why)
    return tuple(found), errors


def planned(
    wanted: WantedSnapshots, names: Sequence[QualifiedName], checkpoint: WindowMarker
) -> Iterable[tuple[PlannedTable, TransactionsSeen]]:
    """The tables as one snapshot shows them, with the transactions that it shows."""
    if not names:
        return
    work = wanted.work(names, checkpoint, wanted.run.pipeline.snapshot.chunk_bytes)
    with connected(wanted.run.pipeline.source.dsn) as connection:
        seen, transactions = _look(connection, work)
    for name in names:
        yield PlannedTable(work, _OWN_SNAPSHOTS, name, seen), transactions


def _look(connection: Connection, work: SnapshotWork) -> tuple[Seen, TransactionsSeen]:
    with source_errors("the tables could not be looked at"):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        found = look(connection, work), TransactionsSeen.of(connection)
        connection.execute("COMMIT")
    return found


def _chunked(
    table: PlannedTable, read: TableRead, transactions: TransactionsSeen, checkpoint: WindowMarker
) -> ChunkedTable | None:
    """None if too many plans of it were void."""
    lake = table.work.pipeline.lake
    log, record = ChangeLog(lake.change_log), ReadRecord(lake, table.name)
    known, before = record.plan(), table.state()
    writer, physical, ids = _writer(table, read, before)
    adopted = table.adopts
    fresh = ReadPlan(
        table.name,
        _source(checkpoint),
        read.shape.relid,
        table.seen.fingerprints[table.name].word,
        _what(table, read),
        generation_of(before),
        checkpoint.ordinal + 1,
        writer,
        physical,
        ids,
        table.seen.ranges[table.name],
        datetime.now(UTC),
    )
    if known is not None and known.is_of_same(fresh):
        seen = replace(table.seen, ranges={**table.seen.ranges, table.name: known.chunks})
        table = replace(table, seen=seen, began=known.began)
        return ChunkedTable(table, _planned_read(table), known, is_new=False)
    if adopted is not None:
        if any(column.mask is not None for column in read.columns):
            raise not_adopted(table.name, adopted.path, "it has masked columns")
        fresh = replace(fresh, adopted=CopiedTable.of(adopted, read.shape, lake.root).version)
    begun = known if known is not None and known.goes_on_from(before) else None
    attempt = 0 if begun is None else begun.attempt + 1
    if begun is not None and not begun.is_void:
        _log.warning("%s was altered while its snapshot was read: it is read from the start", table.name)
    if attempt >= _VOID_PLANS:
        record.remove()
        if adopted is not None:
            why = f"what was compared was void {_VOID_PLANS} times, as one of the two was altered"
            raise not_adopted(table.name, adopted.path, why)
        return None
    first = transactions.first_window_unseen(log, read.shape.relid, checkpoint.ordinal)
    plan = replace(fresh, first_window=first, attempt=attempt)
    return ChunkedTable(replace(table, began=plan.began), read, plan, is_new=True)


def _planned_read(table: PlannedTable) -> TableRead:
    read = table.read()
    assert not isinstance(read, CdcError)
    return read


def same_as_planned(chunked: ChunkedTable, table: PlannedTable, checkpoint: WindowMarker) -> bool:
    """Whether ``table``, as it is now, is still the one that the plan was made for."""
    read = table.read()
    if isinstance(read, CdcError) or table.name not in table.seen.fingerprints:
        return False
    now = replace(
        chunked.plan,
        source=_source(checkpoint),
        relid=read.shape.relid,
        word=table.seen.fingerprints[table.name].word,
        what=_what(table, read),
        chunks=table.seen.ranges[table.name],
    )
    return now.is_of_same(chunked.plan)


def _writer(
    table: PlannedTable, read: TableRead, before: TableState | None
) -> tuple[Engine, tuple[str, ...], tuple[int | None, ...]]:
    if table.writer(read) == "deltalake" and not keeps_past(table.mode):
        target = WholeTable.of(table.path, table.written(read), table.provenance(read, before))
        if target is not None and not target.has_other_columns:
            return "deltalake", target.physical, target.ids
    return "spark", (), ()


def _source(checkpoint: WindowMarker) -> str:
    identity = checkpoint.identity
    return f"{identity.system_identifier}/{identity.database}/{identity.slot}/{identity.chapter}"


def _what(table: PlannedTable, read: TableRead) -> str:
    """What determines the rows and columns that are read, but for the table itself."""
    columns = [(column.name, column.attnum, column.lake_type.sql, column.key) for column in read.shape.columns]
    policies = [(column.base_typid, column.on_unrepresentable) for column in read.columns]
    policy = table.work.pipeline.on_unrepresentable
    adopts = (adopted,) if (adopted := table.adopts) is not None else ()
    parts = (columns, policies, table.row_filter, table.mask, table.types.word, policy)
    parts = (*parts, *table.form.commit_columns, *adopts)
    return hashlib.sha256(repr(parts).encode()).hexdigest()
