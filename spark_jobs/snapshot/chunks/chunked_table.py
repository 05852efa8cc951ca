"""Which tables are read in chunks, and each by which plan: one that another process has begun, or a new one."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from deltalake.transaction import AddAction

from spark_jobs.errors import CdcError, SnapshotWaitsError, SourceError
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import CommitColumn, keeps_past
from spark_jobs.postgres.connection import connected, source_errors
from spark_jobs.postgres.open_transactions import writer_from_before
from spark_jobs.postgres.table_sizes import table_sizes
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.misfits import Misfits
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.snapshot.adopted.copied_table import CopiedTable, not_adopted
from spark_jobs.snapshot.chunks.partial_table import PartialTable
from spark_jobs.snapshot.chunks.planned_columns import AlteredTableError, PlannedColumn, PlannedColumns
from spark_jobs.snapshot.chunks.read_by_key import has_readable_key
from spark_jobs.snapshot.chunks.read_plan import ReadPlan, generation_of
from spark_jobs.snapshot.chunks.read_record import ReadRecord, ReadSoFar, RecordedFiles
from spark_jobs.snapshot.chunks.staged_files import StagedFiles
from spark_jobs.snapshot.chunks.transactions_seen import TransactionsSeen
from spark_jobs.snapshot.export import ExportedSnapshot
from spark_jobs.snapshot.planned_table import PlannedTable, TableToRead, look
from spark_jobs.snapshot.snapshot_work import SnapshotWork
from spark_jobs.snapshot.table_read import TableRead
from spark_jobs.storage import Recent
from spark_jobs.writers.with_arrow.whole_table import WholeTable

_log = logging.getLogger(__name__)

# a table that is altered again and again is read in one exported snapshot in the end
_VOID_PLANS = 3
# most transactions end within a moment
_WRITER_SECONDS = 2.0
_LOOK_EVERY_SECONDS = 0.2
_OWN_SNAPSHOTS = ExportedSnapshot(None, Lsn(0))


class _Shown(Recent[PartialTable]):
    """By what is read of their snapshots."""


@dataclass(frozen=True)
class ChunkedTable:
    """A table that is read in chunks: ``table`` as it is now, with the ranges of ``plan``. ``known``: the plan that the
    record has."""

    table: PlannedTable
    plan: ReadPlan
    known: ReadPlan | None

    @property
    def read(self) -> TableRead:
        return self.table.read

    @property
    def name(self) -> QualifiedName:
        return self.table.name

    @property
    def work(self) -> SnapshotWork:
        return self.table.work

    @property
    def record(self) -> ReadRecord:
        return ReadRecord(self.work.pipeline.lake, self.name)

    @property
    def staged(self) -> StagedFiles:
        return self._staged(self.plan.columns, self.read.shape)

    def staged_before(self, revision: int) -> StagedFiles:
        """As they were read with these columns of the plan."""
        columns = self.plan.revisions[revision]
        lake_columns = tuple(column.in_lake for column in columns.source)
        return self._staged(columns, replace(self.read.shape, columns=lake_columns))

    def _staged(self, columns: PlannedColumns, shape: TableShape) -> StagedFiles:
        """Commit columns are added to the rows in the end, when the snapshot's LSN is known."""
        table, aside, whole = self.table.path, self.record.folder, not self.commit_columns
        return StagedFiles.of(columns, shape, table=table, aside=aside, whole=whole, is_partial=self.is_partial)

    @property
    def is_partial(self) -> bool:
        """Whether the chunks that are read are shown. Those of a table that adopts rows lack these."""
        return self.work.pipeline.snapshot.partial and not self.plan.adopted

    def shown(self, unread: Iterable[int]) -> PartialTable | None:
        """What shows all chunks but those that are ``unread``. Raises LakeError."""
        if not self.is_partial:
            self.record.hide()
            return None
        if (known := self._remembered.take(self._progress(unread))) is not None:
            return known
        shown, newest = PartialTable.of(self.name, self.staged), len(self.plan.revisions) - 1
        parts = self.record.chunks(self.plan).parts
        shown.begin([file for part in parts if part.revision == newest for file in part.files])
        return shown

    def keep_shown(self, shown: PartialTable, unread: Iterable[int]) -> None:
        """For the next call of this process, which then need not read what the record says of each chunk."""
        self._remembered.keep(self._progress(unread), shown)

    @property
    def _remembered(self) -> _Shown:
        return self.table.path.storage.memory(_Shown)

    def _progress(self, unread: Iterable[int]) -> str:
        return repr((self.name, self.plan.began, len(self.plan.revisions), sorted(unread)))

    def read_into(self, files: tuple[AddAction, ...], first_window: int, misfits: Misfits) -> ReadSoFar:
        """All chunks, read into these files with the columns that the table has now."""
        newest = len(self.plan.revisions) - 1
        return ReadSoFar((RecordedFiles("", files, newest),), first_window, newest, is_corrected=True, misfits=misfits)

    def keep_plan(self) -> None:
        """Raises AlteredTableError if another process has altered the plan, too; and LakeError."""
        if self.plan == self.known:
            return
        if len(self.plan.revisions) == 1:
            self.record.begin(self.plan)
        elif not self.record.alter(self.plan):
            raise AlteredTableError

    @property
    def commit_columns(self) -> tuple[CommitColumn, ...]:
        return self.table.form.commit_columns


def large_tables(work: SnapshotWork) -> tuple[QualifiedName, ...]:
    """Those of the tables that do not fit into one chunk, and those that adopt rows."""
    pipeline = work.pipeline
    adopting = tuple(
        name
        for name in work.names
        if pipeline.table(name).adopt and table_state(pipeline.lake, name, work.checkpoint.identity) is None
    )
    with work.run.source() as connection:
        sizes = pipeline.by_name(work.names, table_sizes(connection, pipeline.relations(work.names)))
    read = [name for name in work.names if name in sizes and not pipeline.table(name).begins_empty]
    large = (name for name in read if sizes[name].bytes > pipeline.snapshot.chunk_bytes)
    return tuple(dict.fromkeys((*adopting, *large)))


def chunked_tables(
    work: SnapshotWork, names: Sequence[QualifiedName]
) -> tuple[tuple[ChunkedTable, ...], dict[QualifiedName, CdcError]]:
    """Those of ``names`` that can be read in chunks, and the errors of those that cannot be read at all."""
    tables: list[ChunkedTable] = []
    errors: dict[QualifiedName, CdcError] = {}
    for seen, transactions in planned(work, names):
        try:
            table = PlannedTable.of(seen)
            if has_readable_key(table.read) and not (table.sent and table.sent.missing_operations):
                chunked = _chunked(table, transactions)
                tables += [chunked] if chunked is not None else []
            elif (adopted := table.adopts) is not None:
                why = "no row of it can be read by its key, or not all of its changes are published"
                raise not_adopted(table.name, adopted.path, why)
        except CdcError as error:
            errors[seen.name] = error
    return tuple(tables), errors


def planned(work: SnapshotWork, names: Sequence[QualifiedName]) -> Iterable[tuple[TableToRead, TransactionsSeen]]:
    """The tables as one snapshot shows them, with the transactions that it shows."""
    if not names:
        return
    work = replace(work, names=tuple(names), chunk_bytes=work.pipeline.snapshot.chunk_bytes)
    with (
        connected(work.pipeline.source.dsn) as connection,
        source_errors("the tables could not be looked at"),
    ):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        seen, transactions = look(connection, work), TransactionsSeen.of(connection)
        connection.execute("COMMIT")
    for name in names:
        yield TableToRead(work, _OWN_SNAPSHOTS, name, seen[name]), transactions


def _chunked(table: PlannedTable, transactions: TransactionsSeen) -> ChunkedTable | None:
    """None if too many plans of it were void."""
    lake, checkpoint = table.work.pipeline.lake, table.work.checkpoint
    log, record = table.work.run.log, ReadRecord(lake, table.name)
    read, known, before = table.read, record.plan(), table.state()
    fresh = _fresh(table, before)
    plan = None if known is None else _read_on(known, fresh, table)
    if plan is not None:
        table = replace(table, seen=replace(table.seen, ranges=plan.chunks))
        return ChunkedTable(PlannedTable.of(table, plan.began), plan, known)
    if (adopted := table.adopts) is not None:
        if any(column.mask is not None for column in read.columns):
            raise not_adopted(table.name, adopted.path, "it has masked columns")
        fresh = replace(fresh, adopted=CopiedTable.of(adopted, read.shape, lake.root).version)
    begun = known if known is not None and known.goes_on_from(before) else None
    attempt = 0 if begun is None else begun.attempt + 1
    if begun is not None and not begun.is_void:
        _log.warning("%s was altered while its snapshot was read: it is read from the start", table.name)
    if attempt >= _VOID_PLANS:
        if adopted is not None:
            record.remove()
            why = f"what was compared was void {_VOID_PLANS} times, as one of the two was altered"
            raise not_adopted(table.name, adopted.path, why)
        return None
    _require_all_sent(table)
    first = transactions.first_window_unseen(log, read.shape.relid, checkpoint)
    plan = replace(fresh, first_window=first, attempt=attempt)
    return ChunkedTable(replace(table, began=plan.began), plan, known)


def _require_all_sent(table: PlannedTable) -> None:
    """Chunks lack what open transactions have written, and the log has it only if the table was published by then.
    Raises SnapshotWaitsError while a transaction is open that may have written before."""
    relid, publications = table.read.shape.relid, table.work.watched.publications
    until = time.monotonic() + _WRITER_SECONDS
    with table.work.run.source() as connection:
        while (writer := writer_from_before(connection, relid, publications)) is not None:
            if time.monotonic() > until:
                raise SnapshotWaitsError(
                    f"{table.name} is not read while the transaction {writer}, has not ended: it has written to the"
                    " table, and is older than its publication",
                    hint=f"end it, if it was forgotten: {writer.way_to_end}",
                )
            time.sleep(_LOOK_EVERY_SECONDS)


def _fresh(table: PlannedTable, before: TableState | None) -> ReadPlan:
    fingerprint = table.seen.fingerprint
    assert fingerprint is not None  # or it could not be read
    return ReadPlan(
        table.name,
        _source(table),
        table.read.shape.relid,
        fingerprint.word,
        fingerprint.text,
        _what(table),
        generation_of(before),
        table.work.checkpoint.ordinal + 1,
        (_columns(table, before),),
        table.seen.ranges,
        datetime.now(UTC),
    )


def _read_on(known: ReadPlan, fresh: ReadPlan, table: PlannedTable) -> ReadPlan | None:
    """The plan by which the table is read on. None if it is read from the start."""
    if known.is_of_same(fresh):
        return known
    # where changes name no columns' numbers, no DDL on columns is followed in place
    return None if table.work.watched.by_name else known.altered_as(fresh)


def same_as_planned(chunked: ChunkedTable, table: TableToRead) -> bool:
    """Whether ``table``, as it is now, is still the one that the plan was made for."""
    try:
        read = table.planned_read()
    except CdcError:
        return False
    if table.seen.fingerprint is None:
        return False
    now = replace(
        chunked.plan,
        source=_source(table),
        relid=read.shape.relid,
        word=table.seen.fingerprint.word,
        what=_what(table),
        revisions=(replace(chunked.plan.columns, source=_read_columns(read)),),
        chunks=table.seen.ranges,
    )
    return chunked.plan.is_of_same(now)


@contextmanager
def as_planned(chunked: ChunkedTable) -> Iterator[None]:
    """Where a read of the table fails, raises AlteredTableError if the table is no longer as planned."""
    try:
        yield
    except SourceError as error:
        ((table, _),) = planned(chunked.work, [chunked.name])
        if same_as_planned(chunked, table):
            raise error.within(f"{chunked.name} cannot be read") from error
        raise AlteredTableError from error


def _columns(table: PlannedTable, before: TableState | None) -> PlannedColumns:
    source = _read_columns(table.read)
    if table.writer == "deltalake" and not keeps_past(table.form.mode):
        target = WholeTable.of(table.path, table.written, table.provenance(before))
        if target is not None:
            return PlannedColumns(source, "deltalake", target.physical, target.ids)
    return PlannedColumns(source, "spark", (), ())


def _read_columns(read: TableRead) -> tuple[PlannedColumn, ...]:
    return tuple(
        PlannedColumn(column.attnum, column.name, column.lake_type.sql, column.key, how.on_unrepresentable)
        for column, how in zip(read.shape.columns, read.columns, strict=True)
    )


def _source(table: TableToRead) -> str:
    identity = table.work.checkpoint.identity
    return f"{identity.system_identifier}/{identity.database}/{identity.slot}/{identity.chapter}"


def _what(table: TableToRead) -> str:
    """What determines the rows that are read, and how, but for the table itself and its columns."""
    policy = table.work.pipeline.on_unrepresentable
    adopts = (adopted,) if (adopted := table.adopts) is not None else ()
    parts = (
        table.row_filter,
        table.mask,
        table.options.types.word,
        policy,
        *table.form.commit_columns,
        *adopts,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()
