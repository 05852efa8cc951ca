"""Rows read by their keys: those that moved, while their table was read, to where it had been read already."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.snapshot.planned_table import PlannedTable
from spark_jobs.snapshot.range_read import RangeQuery
from spark_jobs.snapshot.table_read import TableRead

_KEYS_AT_ONCE = 10_000
# Arrow prints their values as PostgreSQL reads them
_PRINTED = {
    LakeKind.BOOLEAN,
    LakeKind.SMALLINT,
    LakeKind.INT,
    LakeKind.BIGINT,
    LakeKind.DECIMAL,
    LakeKind.DATE,
    LakeKind.TIMESTAMP,
    LakeKind.TIMESTAMP_NTZ,
    LakeKind.STRING,
}


def has_readable_key(read: TableRead) -> bool:
    """Whether a row can be found in the source by the key that it has in the lake."""
    columns = [read.columns[place] for place in read.shape.key_indices]
    return bool(columns) and all(column.lake_type.kind in _PRINTED and column.mask is None for column in columns)


def queries_by_key(connection: Connection, table: PlannedTable, keys: pa.Table) -> Iterator[RangeQuery]:
    """The queries for the rows with these ``keys``, each for some of them. Their checks are those of all its ranges.
    Raises SourceError."""
    read = table.read
    columns = [read.shape.columns[place] for place in read.shape.key_indices]
    with source_errors("the types of the key could not be looked up"):
        names = [
            connection.execute("SELECT pg_catalog.format_type(%s::oid, -1)", [column.atttypid]).fetchall()[0][0]
            for column in columns
        ]
    own = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
    given = [sql.Identifier(f"key_{place}") for place in range(len(names))]
    placed = sql.SQL(", ").join(given)
    # an array of arrays would be unnested down to their elements, and one of composites to their fields
    typed = sql.SQL(", ").join(
        sql.SQL("{}::{}").format(key, sql.SQL(name)) for key, name in zip(given, names, strict=True)
    )
    checks = dict.fromkeys(query.check for task in read.tasks for query in task)
    check = f"SELECT ARRAY[{', '.join(f'({each})' for each in checks)}]"
    for first in range(0, keys.num_rows, _KEYS_AT_ONCE):
        some = keys.slice(first, _KEYS_AT_ONCE)
        texts = sql.SQL(", ").join(
            sql.SQL("{}::text[]").format(sql.Literal(pc.cast(some.column(place), pa.string()).to_pylist()))
            for place in range(len(names))
        )
        among = sql.SQL("({}) IN (SELECT {} FROM unnest({}) AS given ({}))").format(own, typed, texts, placed)
        yield RangeQuery(str(table.name), table.rows_where(among), check, f"{read.shape.relid}/keys")
