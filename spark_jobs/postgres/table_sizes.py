"""How large tables are, and how fast this process reads from the source: for what a snapshot would cost."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.partition_tree import partition_tree_sql
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import FIRST_NORMAL_OID

_NAMED = "(n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[]::name[], %s::text[]::name[]))"
# a partition is part of its root, and temporary tables are seen by their own session alone
_OF_USERS = f"""c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND c.oid >= {FIRST_NORMAL_OID}"""
_SAMPLE_BYTES = 64 << 20
_LEAST_BYTES = 1 << 20
_LONGEST = 1.0  # seconds
_LOCKED_FOR = "1s"
_UNREAD = "the sizes of the tables could not be read"


@dataclass(frozen=True)
class TableSize:
    """A table with its partitions. ``bytes`` with TOAST and without indexes. ``rows``: as of the last ANALYZE or
    VACUUM; None before the first one. ``largest_part``: the table itself, or its largest partition."""

    name: QualifiedName
    bytes: int
    rows: int | None
    largest_part: QualifiedName
    is_foreign: bool


def table_sizes(connection: Connection, names: Collection[QualifiedName]) -> dict[QualifiedName, TableSize]:
    """By table; those that do not exist are left out, and all of them while one is being altered: no snapshot is
    exported before that has ended, and whoever asks for one is told what it waits for. Raises SourceError."""
    parameters = [[name.nspname for name in names], [name.relname for name in names]]
    with source_errors(_UNREAD):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCKED_FOR}'")
                return {size.name: size for size in _sizes(connection, _NAMED, parameters)}
        except psycopg.errors.LockNotAvailable:
            return {}


def user_tables(connection: Connection) -> tuple[TableSize, ...]:
    """Every table that is not PostgreSQL's own, ordered by name, whatever the role may do with it. Raises
    SourceError."""
    with source_errors(_UNREAD):
        return _sizes(connection, _OF_USERS)


def _sizes(connection: Connection, which: str, parameters: Sequence[Any] = ()) -> tuple[TableSize, ...]:
    query = f"""
WITH RECURSIVE wanted AS (
  SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE {which}
), {partition_tree_sql("wanted")}
SELECT n.nspname::text, c.relname::text, coalesce(sum(size.bytes), 0)::bigint,
  CASE WHEN bool_and(m.reltuples >= 0 OR m.relkind = 'p')
    THEN (sum(m.reltuples) FILTER (WHERE m.relkind <> 'p'))::bigint END,
  (array_agg(ARRAY[mn.nspname::text, m.relname::text] ORDER BY size.bytes DESC NULLS LAST))[1:1], c.relkind = 'f'
FROM tree t CROSS JOIN LATERAL pg_catalog.pg_table_size(t.member) AS size(bytes)
JOIN pg_catalog.pg_class c ON c.oid = t.root JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class m ON m.oid = t.member JOIN pg_catalog.pg_namespace mn ON mn.oid = m.relnamespace
GROUP BY n.nspname, c.relname, c.relkind ORDER BY n.nspname, c.relname
"""  # noqa: S608  # constants
    rows = connection.execute(query, parameters).fetchall()
    return tuple(
        TableSize(QualifiedName(nspname, relname), size, count, QualifiedName(*part[0]), is_foreign)
        for nspname, relname, size, count, part, is_foreign in rows
    )


def read_pace(connection: Connection, table: QualifiedName) -> float | None:
    """Bytes per second: the table is read by COPY, as a snapshot reads it, for a second or 64 MiB, and thrown away.
    None if it has too little to measure. Raises SourceError."""
    query = sql.SQL("COPY (SELECT * FROM ONLY {}) TO STDOUT (FORMAT binary)").format(
        sql.Identifier(table.nspname, table.relname)
    )
    started, read = time.monotonic(), 0
    with source_errors(f"{table} could not be read"), connection.cursor() as cursor, cursor.copy(query) as copy:
        for data in copy:  # leaving the block cancels the rest
            read += len(data)
            seconds = time.monotonic() - started
            if read > _SAMPLE_BYTES or seconds > _LONGEST:
                break
    return read / seconds if read > _LEAST_BYTES else None
