"""Reads one table in an exported snapshot: for a new snapshot, and for ``verify`` to compare with.

Executors read it, or the driver if it is small: then no Python worker has to start and to receive this package.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError, PreconditionError
from spark_jobs.options.table_mask import TableMask
from spark_jobs.postgres.bulk_read import BulkConnect, bulk_connection
from spark_jobs.postgres.connection import conninfo
from spark_jobs.postgres.published_tables import PublishedTable
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.differing_columns import SAME_COLUMNS, DifferingColumns, shape_in_lake
from spark_jobs.schema.misfits import MOST_RECORDS, NO_MISFITS, Misfits
from spark_jobs.schema.net_columns import MISFIT_LSN, arrow_schema, ddl, misfit, misfit_fields, value, value_fields
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.snapshot.export import AppliedLater, CtidRange, range_query, snapshot_column
from spark_jobs.snapshot.range_read import RangeQuery, RangeReader, read_range
from spark_jobs.snapshot.snapshot_column import SnapshotColumn
from spark_jobs.tables.masked_columns import why_mask_does_not_fit
from spark_jobs.writers.merge_sql import named_columns
from spark_jobs.writers.with_spark.staged_misfits import NotedFrame, counted_misfits, misfits_among
from spark_jobs.writers.with_spark.variants import with_variants

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SMALL_RANGES = 16  # each is a statement of its own
_TASKS = 64  # one range each; from twice as many on, tasks grow
_RANGES_PER_TASK = 4  # the most: 256 MB of heap, which a retried task reads again
_SMALL_BYTES = 4 << 20
_DRIVER_BYTES = 32 << 20  # values of a small table may be compressed: with more than this, executors read it

# is told of the misfits of each batch, before the batch is yielded
Note: TypeAlias = Callable[[Misfits], None]
Rows: TypeAlias = Generator[pa.RecordBatch, None, None]


def not_noted(_: Misfits) -> None:
    """For readers that write nothing."""


@dataclass
class MisfitsRead:
    """Those of the rows that one task has read so far."""

    found: Misfits = NO_MISFITS

    def note(self, misfits: Misfits) -> None:
        self.found = Misfits.all_of((self.found, misfits))


class TaskReader(Protocol):
    """Reads the rows of a task. To be closed if it is not read to its end: then its session is, too."""

    def __call__(self, task: int, note: Note = not_noted, /) -> Rows: ...


@dataclass(frozen=True)
class SnapshotSource:
    """Where rows are read: in sessions of ``connect``, as the exported snapshot of this name shows them; without a
    name, each range in a snapshot of its own. ``read``: how the rows of a range are. Of this, only single fields travel
    to executors, in a closure, so no plan, log or web page shows the connection string."""

    connect: BulkConnect
    snapshot_name: str | None
    read: RangeReader = read_range

    @classmethod
    def anywhere(cls, pipeline: Pipeline, snapshot_name: str | None) -> SnapshotSource:
        """In sessions that executors open, too."""
        return cls(partial(bulk_connection, conninfo(pipeline.source.dsn)), snapshot_name)


@dataclass(frozen=True)
class TableRead:
    """``tasks``: the queries of each task, which runs them one after the other. ``columns``: in ``shape``'s order.
    ``stored_bytes``: the size of heap and TOAST tables that are read. ``differing``: which columns are left out."""

    shape: TableShape
    columns: tuple[SnapshotColumn, ...]
    tasks: tuple[tuple[RangeQuery, ...], ...]
    stored_bytes: int
    differing: DifferingColumns = SAME_COLUMNS

    @classmethod
    def of(
        cls,
        name: QualifiedName,
        facts: RelationFacts | None,
        ranges: Sequence[CtidRange],
        sent: PublishedTable | None,
        *,
        applied: AppliedLater = "changes",
        mask: TableMask | None = None,
        ignored: Collection[int] = (),
    ) -> TableRead:
        """``sent``: what the publications send of the table; None: all rows and its own columns. ``applied``: see
        ``range_query``; a range with a snapshot of its own is a task of its own. ``mask``: hashes the masked columns of
        ``facts``. ``ignored``: the numbers of columns to leave out.

        Raises PreconditionError when ``facts`` is None (the table does not exist) or the table has no usable key,
        ConfigurationError when there is no column of a masked column's name, and RefusedChangeError for ignored columns
        without which the table cannot be replicated.
        """
        if facts is None:
            raise PreconditionError(f"{name} is not in the database", hint="correct tables: in the configuration")
        if mask is not None and (error := why_mask_does_not_fit(facts, mask)):
            raise error
        if sent is not None and sent.error is not None:
            raise sent.error
        described = facts if sent is None else sent.sent_of(facts)
        shape = TableShape.of(described, name=name, stored=sent is not None)
        shape, differing = shape_in_lake(shape, ignored)
        by_name = {column.attname: column for column in facts.columns}
        columns = tuple(snapshot_column(by_name[column.name], mask) for column in shape.columns)
        names = [column.name for column in columns]
        row_filter = sent.row_filter if sent is not None else ""
        queries = [range_query(facts, part, names, row_filter, applied=applied) for part in ranges]
        step = 1 if applied == "changes_of_each" else min(_RANGES_PER_TASK, max(1, len(queries) // _TASKS))
        tasks = tuple(tuple(queries[at : at + step]) for at in range(0, len(queries), step))
        return cls(shape, columns, tasks, sum(part.stored_bytes for part in ranges), differing)

    @property
    def is_small(self) -> bool:
        """Whether the driver reads the table, unless its values turn out to be large."""
        return self.stored_bytes <= _SMALL_BYTES and len(self.tasks) <= _SMALL_RANGES and bool(self.columns)

    def rows(self, spark: SparkSession, source: SnapshotSource) -> DataFrame:
        """The rows with the Delta table's column names and types. Unless the table is small, each Spark action reads
        them again.

        Raises SourceError and UnrepresentableError for a small table; for others, the Spark action raises them.
        """
        small = self._small(spark, source, not_noted)
        return self._stored(self._by_executors(spark, source) if small is None else small)

    def noted_rows(self, spark: SparkSession, source: SnapshotSource) -> NotedFrame:
        """What ``rows`` returns, to be written."""
        noted = self.noted_values(spark, source)
        return replace(noted, rows=self._stored(noted.rows))

    def noted_values(self, spark: SparkSession, source: SnapshotSource) -> NotedFrame:
        """The rows as the decoder yields them, in columns named by ``net_columns.value``, to be written. If executors
        read the table, they count the misfits, and it is read again for the records if there are any."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as fn

        shape, read = self.shape, MisfitsRead()
        if (small := self._small(spark, source, read.note)) is not None:
            return NotedFrame(small, lambda: read.found)
        if not (counts := counted_misfits(shape)):
            return NotedFrame(self._by_executors(spark, source), lambda: NO_MISFITS)
        fields = (*value_fields(shape), *(field for field in misfit_fields(shape) if field != MISFIT_LSN))
        reader = _complete(self._fitted_reader(source), arrow_schema(fields))
        whole = self._tasks(spark).mapInArrow(_on_executors(reader), ddl(fields))
        observation = Observation()
        values = whole.observe(observation, *map(fn.expr, counts)).select(
            *(field.name for field in value_fields(shape))
        )
        return NotedFrame(values, lambda: misfits_among(whole, observation.get, shape))

    def _small(self, spark: SparkSession, source: SnapshotSource, note: Note) -> DataFrame | None:
        """None if the table is not small."""
        rows = self.values_on_driver(source, note)
        return None if rows is None else spark.createDataFrame(rows, schema=ddl(value_fields(self.shape))).coalesce(1)

    def _by_executors(self, spark: SparkSession, source: SnapshotSource) -> DataFrame:
        schema = ddl(value_fields(self.shape))
        return self._tasks(spark).mapInArrow(_on_executors(self.task_reader(source)), schema)

    def _tasks(self, spark: SparkSession) -> DataFrame:
        """Their numbers."""
        return spark.range(0, len(self.tasks), 1, max(1, len(self.tasks)))

    def _stored(self, values: DataFrame) -> DataFrame:
        return with_variants(values, self.shape.columns).selectExpr(*named_columns(self.shape.columns))

    def task_reader(self, source: SnapshotSource) -> TaskReader:
        """The function that reads the rows of a task, by its number. The salt of masked columns travels to executors
        only in its closure."""
        fitted, shape = self._fitted_reader(source), self.shape
        names = [value(i) for i in range(len(shape.columns))]

        def read_task(task: int, note: Note = not_noted) -> Rows:
            left = MOST_RECORDS
            with closing(fitted(task)) as batches:
                for rows in batches:
                    if rows.num_columns > len(names):
                        misfits = Misfits.of(pa.Table.from_batches([rows]), shape, left)
                        left -= misfits.records.num_rows
                        note(misfits)
                    yield rows.select(names)

        return read_task

    def _fitted_reader(self, source: SnapshotSource) -> Callable[[int], Rows]:
        """As ``task_reader``, but the rows have the columns of their misfits, if there are any."""
        tasks, columns, table = self.tasks, self.columns, str(self.shape.name)
        connect, name, read = source.connect, source.snapshot_name, source.read

        def read_task(task: int) -> Rows:
            for query in tasks[task]:
                with closing(read(connect, name, query)) as batches:
                    for rows in batches:
                        yield _fitted(rows, columns, table)

        return read_task

    def values_on_driver(self, source: SnapshotSource, note: Note = not_noted) -> pa.Table | None:
        """The rows of ``noted_values``, read by the driver; None if the table is not small. Raises as ``rows`` does."""
        if not self.is_small:
            return None
        read = self.task_reader(source)
        batches: list[pa.RecordBatch] = []
        size = 0
        try:
            for task in range(len(self.tasks)):
                with closing(read(task, note)) as of_task:
                    for rows in of_task:
                        batches.append(rows)
                        size += rows.nbytes
                        if size > _DRIVER_BYTES:
                            return None
        except CdcError as error:
            raise error.within(f"{self.shape.name} cannot be read") from error
        return pa.Table.from_batches(batches, arrow_schema(value_fields(self.shape)))


def _complete(read_task: Callable[[int], Rows], schema: pa.Schema) -> Callable[[int], Rows]:
    """The rows with all columns of ``schema``."""

    def read(task: int) -> Rows:
        with closing(read_task(task)) as batches:
            for rows in batches:
                missing = {name: pa.nulls(rows.num_rows, schema.field(name).type) for name in schema.names}
                arrays = {name: rows.column(name) for name in rows.schema.names}
                yield pa.RecordBatch.from_pydict({**missing, **arrays}, schema)

    return read


def _on_executors(read_task: Callable[[int], Rows]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executors run: task numbers in, rows out."""

    def read_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read_task(task)

    return read_tasks


def _fitted(rows: pa.RecordBatch, columns: tuple[SnapshotColumn, ...], table: str) -> pa.RecordBatch:
    fitted = [column.values(rows.column(i), table=table) for i, column in enumerate(columns)]
    named = {value(i): each.values for i, each in enumerate(fitted)}
    named |= {misfit(i): each.misfits for i, each in enumerate(fitted) if each.misfits is not None}
    return pa.RecordBatch.from_pydict(named)
