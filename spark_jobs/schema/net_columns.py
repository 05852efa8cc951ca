"""The columns of a net change, one row per key: their names, and their types in Arrow and in Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.options.table_mode import Mode, holds_changes
from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.table_shape import TableShape

OPERATION = "op"
UPSERT, DELETE = 1, 0


@dataclass(frozen=True)
class NetField:
    """One column: its name, its type in Arrow, and in Spark's DDL."""

    name: str
    arrow: pa.DataType
    sql: str


# added by executors. FRESH: an upsert of a key that had no row before the range. LEANS: a row depends on another key,
# so that only the order of the log can give an outcome
FRESH = NetField("fresh", pa.bool_(), "boolean")
LEANS = NetField("leans", pa.bool_(), "boolean")


# for a table without a key, in place of the operation: how many copies of the row are inserted or, if negative, deleted
COPIES = NetField("copies", pa.int64(), "bigint")


def value(index: int) -> str:
    """The column with the value of ``shape.columns[index]``."""
    return f"v{index}"


def unchanged(index: int) -> str:
    """The column that is true where the table keeps its own value of ``shape.columns[index]``."""
    return f"u{index}"


def old_key(index: int) -> str:
    """The column with the key under which the table holds the kept values of a row whose key changed; null if they are
    under the row's own key."""
    return f"f{index}"


def misfit(index: int) -> str:
    """The column with PostgreSQL's text of those values of ``shape.columns[index]`` that the lake's type cannot hold.
    Decoding adds it beside the values if there are any; it is no part of what is written."""
    return f"x{index}"


# in addition to these, for rows of changes: the LSN of the commit that made the row what it is
MISFIT_LSN = NetField("misfit_lsn", pa.int64(), "bigint")


@dataclass(frozen=True)
class NetColumns:
    """``op`` (1 upsert, 0 delete) and a value for each of ``shape.columns``, which may end with commit columns. If some
    row needs them, then flags for ``unchanged`` values and the ``old_keys`` of rows whose key changed; both list
    indices of ``shape.columns``. For a table without a key: ``copies`` and the values. The mode's columns come last. In
    mode ``history`` ``op`` is 1 for a version that begins and 0 for one that ends; in mode ``append`` there is no
    ``op``."""

    shape: TableShape
    unchanged: tuple[int, ...] = ()
    old_keys: tuple[int, ...] = ()
    mode: Mode = "mirror"

    @classmethod
    def all_possible(cls, shape: TableShape, mode: Mode) -> NetColumns:
        """All columns that a net change of the table may have."""
        if holds_changes(mode):
            return cls(shape, mode=mode)
        places = range(len(shape.columns))
        indices = (i for i in places if not shape.columns[i].key and not shape.columns[i].of_commit)
        return cls(shape, tuple(indices), shape.key_indices, mode)

    @property
    def fields(self) -> tuple[NetField, ...]:
        kept = tuple(NetField(column.net, column.arrow, column.sql) for column in mode_columns(self.mode))
        if holds_changes(self.mode):
            return (*value_fields(self.shape), *kept)
        if not self.shape.has_key:
            return (COPIES, *value_fields(self.shape))
        return (
            NetField(OPERATION, pa.int8(), "tinyint"),
            *value_fields(self.shape),
            *(NetField(unchanged(i), pa.bool_(), "boolean") for i in self.unchanged),
            *(NetField(old_key(i), *_types(self.shape, i)) for i in self.old_keys),
            *kept,
        )

    @property
    def with_misfits(self) -> tuple[NetField, ...]:
        """These, and all that there may be for misfits."""
        return (*self.fields, *misfit_fields(self.shape))


def value_fields(shape: TableShape) -> tuple[NetField, ...]:
    """Only the values: the columns that a snapshot reads."""
    return tuple(NetField(value(i), *_types(shape, i)) for i in range(len(shape.columns)))


def misfit_fields(shape: TableShape) -> tuple[NetField, ...]:
    """All columns that there may be for misfits."""
    places = [i for i, column in enumerate(shape.columns) if column.lake_type.has_misfits]
    return (*(NetField(misfit(i), pa.string(), "string") for i in places), *((MISFIT_LSN,) if places else ()))


def arrow_schema(fields: Iterable[NetField]) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.arrow) for field in fields])


def ddl(fields: Iterable[NetField]) -> str:
    """The columns as Spark's DDL."""
    return ", ".join(f"{field.name} {field.sql}" for field in fields)


def _types(shape: TableShape, index: int) -> tuple[pa.DataType, str]:
    lake_type = shape.columns[index].lake_type
    return lake_type.arrow, lake_type.decoded_sql
