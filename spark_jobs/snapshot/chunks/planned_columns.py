"""The columns that chunks are read with. After DDL between two chunks, what was read gets the columns of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_jobs.apply.net_change.net_change import NetChange
from spark_jobs.decode.values import missing_value
from spark_jobs.errors import UnrepresentableError
from spark_jobs.options.column_options import OnUnrepresentable
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.misfits import Misfits
from spark_jobs.schema.net_columns import NetColumns, arrow_schema, old_key, unchanged, value, value_fields
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.writers.write_choice import Engine


class VoidPlanError(Exception):
    """What is read of the table is of no use: the reason."""


class AlteredTableError(Exception):
    """The table is another than the plan was made for. What is read may be of use for another plan."""


@dataclass(frozen=True)
class PlannedColumn:
    """A column of the source: ``sql``, its type in the lake; ``on_unrepresentable``, what the configuration says."""

    attnum: int
    name: str
    sql: str
    key: bool
    on_unrepresentable: OnUnrepresentable

    def becomes(self, other: PlannedColumn) -> bool:
        """Whether its values are those of the other one."""
        column = DeltaColumn(self.name, self.sql, self.attnum)
        same_type = self.sql == other.sql or column.is_widened_in(other.in_lake)
        return same_type and (self.key, self.on_unrepresentable) == (other.key, other.on_unrepresentable)

    @property
    def in_lake(self) -> LakeColumn:
        known = LakeType.of_sql(self.sql) or LakeType(LakeKind.STRING)
        return LakeColumn(self.name, self.attnum, known, self.key)


@dataclass(frozen=True)
class PlannedColumns:
    """``source``: in the order of the files. ``writer``: what commits the table; its files have the names ``physical``
    and numbers ``ids``."""

    source: tuple[PlannedColumn, ...]
    writer: Engine
    physical: tuple[str, ...]
    ids: tuple[int | None, ...]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> PlannedColumns:
        """``fields``: as ``asdict`` gives them. Raises TypeError and KeyError."""
        source = tuple(PlannedColumn(**column) for column in fields["source"])
        return cls(source, fields["writer"], tuple(fields["physical"]), tuple(fields["ids"]))

    def are_written_as(self, others: PlannedColumns) -> bool:
        """Whether what is read with either of them can be committed together."""
        return (self.source, self.writer) == (others.source, others.writer)

    def become(self, others: PlannedColumns) -> bool:
        """Whether the values of the columns in both are the same."""
        now = {column.attnum: column for column in others.source}
        return all(column.becomes(now.get(column.attnum, column)) for column in self.source)

    @property
    def in_lake(self) -> tuple[DeltaColumn, ...]:
        return tuple(DeltaColumn(column.name, column.sql, column.attnum) for column in self.source)


@dataclass(frozen=True)
class ColumnsNow:
    """The columns that all rows of a snapshot get; a row that is older than one of them has its missing value there.
    Both methods raise VoidPlanError if the missing value does not fit: nobody would record that of each row."""

    shape: TableShape

    def rows(self, rows: pa.RecordBatch, numbers: Sequence[int]) -> pa.RecordBatch:
        """``rows`` of columns with these numbers."""
        arrays = dict(zip(numbers, rows.columns, strict=True))
        columns = [self._column(column, arrays, rows.num_rows) for column in self.shape.columns]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(value_fields(self.shape)))

    def net(self, net: NetChange) -> NetChange:
        """A net change that ends before the table got these columns."""
        before = {column.attnum: place for place, column in enumerate(net.columns.shape.columns)}
        places = {now: before[c.attnum] for now, c in enumerate(self.shape.columns) if c.attnum in before}
        columns = NetColumns(
            self.shape,
            tuple(now for now, place in places.items() if place in net.columns.unchanged),
            tuple(now for now, place in places.items() if place in net.columns.old_keys),
            net.columns.mode,
        )
        arrays = {number: net.rows.column(value(place)) for number, place in before.items()}
        made = {
            value(now): self._column(column, arrays, net.rows.num_rows) for now, column in enumerate(self.shape.columns)
        }
        for name in (unchanged, old_key):
            made |= {
                name(now): net.rows.column(name(place))
                for now, place in places.items()
                if name(place) in net.rows.column_names
            }
        names = [field.name for field in columns.fields]
        rows = pa.table([made[name] if name in made else net.rows.column(name) for name in names], names)
        return replace(net, columns=columns, rows=rows)

    def _column(
        self, column: LakeColumn, arrays: Mapping[int, pa.Array | pa.ChunkedArray], rows: int
    ) -> pa.Array | pa.ChunkedArray:
        if column.attnum in arrays:
            return arrays[column.attnum].cast(column.lake_type.arrow)
        if column.missing is None:
            return pa.nulls(rows, column.lake_type.arrow)
        try:
            fitted = missing_value(column, self.shape)
        except UnrepresentableError as error:
            raise VoidPlanError(error.what) from error
        if fitted.misfits is not None:
            raise VoidPlanError(f"the default of {column.name} does not fit the type that it has in the lake")
        return pa.repeat(fitted.values[0], rows)


def are_named_alike(misfits: Misfits, revisions: Sequence[PlannedColumns]) -> bool:
    """Whether all columns that the records of ``misfits`` name have had their names all the time."""
    names = [{(column.attnum, column.name) for column in columns.source} for columns in revisions]
    alike = {name for _, name in set.intersection(*names)}
    keys = {column.name for columns in revisions for column in columns.source if column.key}
    return not misfits or {*misfits.counts, *keys} <= alike
