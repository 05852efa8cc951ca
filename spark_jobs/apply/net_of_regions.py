"""The net change of a range of windows and of partitions that were attached, detached or dropped without row events.

The rows read again replace everything that the table holds of their regions. A region is a condition on the key. So
each row of the table and of the range's net change is either inside, and the rows read decide what becomes of it, or
outside, and the net change decides. An update that moves a row out of a region either sends the row whole, or is in one
partition before and after, which was neither attached nor detached: so the table has its old row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.landed_changes import LandedChanges
from spark_jobs.apply.net_change.net_of_range import columns_of_lake, landed_in_range, net_of_range
from spark_jobs.apply.net_change.on_driver import frame_of, is_broadcast
from spark_jobs.apply.regions_read import RegionsRead
from spark_jobs.apply.staging import staging_folder
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.change_counts import NO_CHANGES
from spark_jobs.decode.close_integers import by_key
from spark_jobs.errors import SchemaChangeError
from spark_jobs.lake.table_state import PartitionsRead
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import (
    DELETE,
    OPERATION,
    UPSERT,
    NetColumns,
    ddl,
    unchanged,
    value,
    value_fields,
)
from spark_jobs.schema.partition_bounds import BoundColumn
from spark_jobs.schema.region_conditions import in_arrow, in_spark
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.writers.delta_fields import has_columns_of
from spark_jobs.writers.merge_sql import KeyRange, in_range, quoted
from spark_jobs.writers.net_source import Frame, NetSource, key_ends, key_range_in, key_range_of
from spark_jobs.writers.with_arrow.opened_table import OpenedTable
from spark_jobs.writers.with_arrow.rewritten_rows import comparable_keys, rows_of_snapshot
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table_within
from spark_jobs.writers.with_spark.past_rows import snapshot_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def net_of_regions(work: TableRange, regions: RegionsRead) -> Iterator[tuple[NetSource, PartitionsRead]]:
    """What is to be written, and what was read for it. Staged files live as long as the context.

    Raises OvertakenError, SchemaChangeError where only a new snapshot helps, and what reading and decoding raise.
    """
    lake_columns = columns_of_lake(work)
    landed = landed_in_range(work, lake_columns) if work.concerns_table() else None
    _require_same_columns(work, lake_columns, regions.shape, landed)
    with nullcontext() if landed is None else net_of_range(work, landed) as net:
        if net is not None and net.truncated:
            raise SchemaChangeError.because(work.name, "it was truncated, and partitions of it came or went")
        whole = _Whole.of(work, regions, net)
        small = None if work.opened is None else whole.on_driver(work.opened)
        with whole.on_executors() if small is None else whole.from_memory(*small) as (source, read):
            yield source, PartitionsRead(regions.reason, read, str(regions.lsn))


def _require_same_columns(
    work: TableRange, lake_columns: Sequence[DeltaColumn], shape: TableShape, landed: LandedChanges | None
) -> None:
    """Raises SchemaChangeError unless lake, change log and source have the same columns."""
    same = has_columns_of(lake_columns, shape)
    if landed is not None:
        same &= not landed.words and _described(landed.shape) == _described(shape)
    if not same:
        raise SchemaChangeError.because(work.name, "its columns or its key changed, and partitions of it came or went")


def _described(shape: TableShape) -> list[tuple[str, int, str, bool]]:
    return [(column.name, column.attnum, column.lake_type.sql, column.key) for column in shape.columns]


@dataclass(frozen=True)
class _Whole:
    """The rows of the regions in source and table, and the ``net`` change outside of them, which has ``columns``."""

    work: TableRange
    regions: RegionsRead
    columns: NetColumns
    net: NetSource | None

    @classmethod
    def of(cls, work: TableRange, regions: RegionsRead, net: NetSource | None) -> _Whole:
        written = regions.shape.with_commit_columns(work.state.generation.commit_columns)
        return cls(work, regions, NetColumns(written) if net is None else net.columns, net)

    def _source(self, read: Frame, rows: int, key_range: KeyRange | None, misfits: Misfits) -> NetSource:
        """All that is written. ``misfits``: of the rows read again."""
        of_range, changes = (NO_MISFITS, NO_CHANGES) if self.net is None else (self.net.misfits, self.net.changes)
        both = Misfits.all_of((misfits.at(self.regions.lsn), of_range))
        return NetSource(self.columns, False, False, key_range, read, rows, changes, misfits=both, among=self._among)

    @property
    def _among(self) -> str:
        """By it Delta skips files. Empty if the net change may touch any row."""
        shape, net, inside = self.columns.shape, self.net, self._inside("t.")
        if net is None or not net.rows:
            return f"({inside})"
        return "" if net.key_range is None else f"({inside} OR {in_range(shape, net.key_range)})"

    def _inside(self, prefix: str) -> str:
        """The condition in SQL that a row of the table is in a region."""
        names = {own.attnum: f"{prefix}{quoted(own.name)}" for own in self.columns.shape.columns}
        return in_spark(self.regions.regions, lambda column: names[column.attnum])

    @property
    def _moment(self) -> Moment:
        return Moment(self.regions.lsn, self.regions.at)

    @property
    def _names(self) -> list[str]:
        return [value(place) for place in range(len(self.columns.shape.columns))]

    @property
    def _key_names(self) -> list[str]:
        return [value(place) for place in self.columns.shape.key_indices]

    def _value(self, column: BoundColumn) -> str:
        """Its name in a net change."""
        return next(value(i) for i, own in enumerate(self.columns.shape.columns) if own.attnum == column.attnum)

    def on_driver(self, opened: OpenedTable) -> tuple[pa.Table, int, Misfits] | None:
        """All rows, the number of those read, and their misfits. None if executors have to do it: there are many, or
        this process cannot read the table."""
        if self.net is not None and self.net.in_memory is None:
            return None
        most = self.work.pipeline.writes.in_memory_bytes
        shape, inside = self.columns.shape, in_arrow(self.regions.regions, self._value)
        names = [shape.columns[place].name for place in shape.key_indices]
        table_keys = rows_of_table_within(opened.table, most, names=names)
        values = None if table_keys is None else self.regions.values_on_driver()
        if table_keys is None or values is None:
            return None
        rows, misfits = values
        self.regions.require_unaltered()
        keys = rows.select(self._key_names)
        table_keys = table_keys.rename_columns(self._key_names).cast(keys.schema).filter(inside)
        found = by_key(comparable_keys(keys))
        if found is None:  # a key is in the source twice: Spark says so
            return None
        is_gone = pc.is_null(found.places_of(comparable_keys(table_keys)))
        written = rows_of_snapshot(rows, self.work.state.generation.form, self._moment).rename_columns(self._names)
        parts = [self._changes(written, UPSERT), self._changes(table_keys.filter(is_gone), DELETE)]
        if self.net is not None and self.net.in_memory is not None:
            parts.append(self.net.in_memory.filter(~inside))
        return pa.concat_tables(parts), rows.num_rows, misfits

    @contextmanager
    def from_memory(self, rows: pa.Table, read: int, misfits: Misfits) -> Iterator[tuple[NetSource, int]]:
        """What is written, and how many rows the regions have in the source; of rows as ``on_driver`` returns them."""
        with frame_of(rows, self.columns, self.work) as (frame, stage):
            source = self._source(frame, rows.num_rows, key_range_of(rows, self.columns.shape), misfits)
            yield replace(source, broadcast=is_broadcast(rows), in_memory=rows, stage=stage), read

    def _changes(self, rows: pa.Table, operation: int) -> pa.Table:
        """``rows`` of values as changes of this operation; columns that they lack are null, and nothing is kept."""
        known = {name: rows.column(name) for name in rows.column_names}
        known[OPERATION] = pa.repeat(pa.scalar(operation), rows.num_rows)
        known |= {unchanged(i): pa.repeat(pa.scalar(False), rows.num_rows) for i in self.columns.unchanged}
        schema = pa.schema([pa.field(field.name, field.arrow) for field in self.columns.fields])
        return pa.table([known.get(name, pa.nulls(rows.num_rows)) for name in schema.names], schema.names).cast(schema)

    @contextmanager
    def on_executors(self) -> Iterator[tuple[NetSource, int]]:
        """The same; the rows that are read are staged, and the others looked up each time."""
        work, schema = self.work, ddl(value_fields(self.regions.shape))
        with isolated_session(work.run.spark(), {}) as own, staging_folder(work.pipeline.lake, work.state) as staged:
            folder = staged / "regions"
            with spark_errors(f"{work.name}: partitions could not be read", name=work.name, path=work.path):
                noted = self.regions.values(own)
                noted.rows.write.option("compression", "snappy").parquet(folder)
                misfits = noted.misfits()
                self.regions.require_unaltered()

                def frame(session: SparkSession) -> DataFrame:
                    return self._frame(session, session.read.schema(schema).parquet(folder))

                read = own.read.schema(schema).parquet(folder).count()
                row = frame(own).selectExpr("count(*) AS rows", *key_ends(self.columns.shape)).collect()[0]
            yield self._source(frame, row["rows"], key_range_in(row), misfits), read

    def _frame(self, session: SparkSession, rows: DataFrame) -> DataFrame:
        """The table's rows are those of the version at which its state was read: an OPTIMIZE since then shows the same
        rows."""
        work, shape = self.work, self.columns.shape
        table = session.read.format("delta").option("versionAsOf", work.state.version).load(work.path)
        keys = [f"{quoted(shape.columns[place].name)} AS {value(place)}" for place in shape.key_indices]
        inside = table.where(self._inside("")).selectExpr(*keys)
        written = snapshot_rows(rows, work.state.generation.form, self._moment).toDF(*self._names)
        gone = inside.join(rows.select(self._key_names), self._key_names, "left_anti")
        parts = [self._framed_changes(written, UPSERT), self._framed_changes(gone, DELETE)]
        if self.net is not None:
            fields = [field.name for field in self.columns.fields]
            outside = self.net.read(session).where(f"NOT ({in_spark(self.regions.regions, self._value)})")
            parts.append(outside.select(fields))
        return reduce(lambda one, other: one.unionByName(other), parts)

    def _framed_changes(self, rows: DataFrame, operation: int) -> DataFrame:
        known = {name: name for name in rows.columns} | {OPERATION: str(operation)}
        known |= {unchanged(i): "false" for i in self.columns.unchanged}
        fields = [(field.name, known.get(field.name, "NULL"), field.sql) for field in self.columns.fields]
        return rows.selectExpr(*(f"CAST({expression} AS {sql}) AS {name}" for name, expression, sql in fields))
