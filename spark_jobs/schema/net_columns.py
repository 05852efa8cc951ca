"""The columns of a net change, one row per key: named, and typed for Arrow and for Spark from one list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.table_mode import Mode

OPERATION = "op"
UPSERT, DELETE = 1, 0


@dataclass(frozen=True)
class NetField:
    """One column: its name, its type in Arrow, and in Spark's DDL."""

    name: str
    arrow: pa.DataType
    sql: str


# of what executors yield: an upsert of a key that had no row before the range; and: there is no outcome, only this
FRESH = NetField("fresh", pa.bool_(), "boolean")
LEANS = NetField("leans", pa.bool_(), "boolean")


# of a table without a key, in place of the operation: so many copies of the row come, or go where it is negative
COPIES = NetField("copies", pa.int64(), "bigint")


def value(index: int) -> str:
    """Holds the value of ``shape.columns[index]``."""
    return f"v{index}"


def unchanged(index: int) -> str:
    """True where the table's own value of ``shape.columns[index]`` stays."""
    return f"u{index}"


def old_key(index: int) -> str:
    """The column of a row that moved and keeps values: the key under which the table holds them; null: the row's
    own."""
    return f"f{index}"


@dataclass(frozen=True)
class NetColumns:
    """``op`` (1 upsert, 0 delete) and a value for each of ``shape.columns``; and, where some row needs it, whether the
    value is ``unchanged``, for these places, and the ``old_keys`` that rows have left, for these. Of a table without a
    key ``copies`` and the values. What the table keeps by its ``mode`` comes behind them: for history ``op`` is 1 for a
    version that begins, 0 for one that ends; a change that is appended has no ``op``."""

    shape: TableShape
    unchanged: tuple[int, ...] = ()
    old_keys: tuple[int, ...] = ()
    mode: Mode = "mirror"

    @classmethod
    def all_possible(cls, shape: TableShape, mode: Mode = "mirror") -> NetColumns:
        """The columns of the widest net change that the table may have."""
        if mode == "append":
            return cls(shape, mode=mode)
        places = range(len(shape.columns))
        return cls(shape, tuple(i for i in places if not shape.columns[i].key), shape.key_indices, mode)

    @property
    def fields(self) -> tuple[NetField, ...]:
        kept = tuple(NetField(column.net, column.arrow, column.sql) for column in mode_columns(self.mode))
        if self.mode == "append":
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


def value_fields(shape: TableShape) -> tuple[NetField, ...]:
    """The values alone: what a snapshot reads."""
    return tuple(NetField(value(i), *_types(shape, i)) for i in range(len(shape.columns)))


def arrow_schema(fields: Iterable[NetField]) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.arrow) for field in fields])


def ddl(fields: Iterable[NetField]) -> str:
    """The columns as Spark's DDL."""
    return ", ".join(f"{field.name} {field.sql}" for field in fields)


def _types(shape: TableShape, index: int) -> tuple[pa.DataType, str]:
    lake_type = shape.columns[index].lake_type
    return lake_type.arrow, lake_type.decoded_sql
