"""How large tables are, and how fast this process reads from the source: for what a snapshot would cost."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from psycopg import sql

from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.qualified_name import QualifiedName

# a table with its partitions, or a partitioned table with those at every level
_SIZES = """
SELECT n.nspname::text, c.relname::text, sum(pg_catalog.pg_table_size(leaf.oid))::bigint,
  CASE WHEN bool_and(leaf.reltuples >= 0) THEN sum(leaf.reltuples)::bigint END,
  (array_agg(ARRAY[ln.nspname::text, leaf.relname::text] ORDER BY leaf.relpages DESC))[1:1]
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid) UNION SELECT c.oid) AS tree(relid)
JOIN pg_catalog.pg_class leaf ON leaf.oid = tree.relid AND leaf.relkind = 'r'
JOIN pg_catalog.pg_namespace ln ON ln.oid = leaf.relnamespace
WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[]::name[], %s::text[]::name[]))
GROUP BY 1, 2
"""
_SAMPLE_BYTES = 64 << 20
_LEAST_BYTES = 1 << 20
_LONGEST = 1.0  # seconds


@dataclass(frozen=True)
class TableSize:
    """``bytes`` with TOAST and without indexes. ``rows``: as of the last ANALYZE or VACUUM; None before the first one.
    ``largest_part``: the table itself, or its largest partition."""

    bytes: int
    rows: int | None
    largest_part: QualifiedName


def table_sizes(connection: Connection, names: Collection[QualifiedName]) -> dict[QualifiedName, TableSize]:
    """By table; those that do not exist are left out. Raises SourceError."""
    with source_errors("the sizes of the tables could not be read"):
        asked = [[name.nspname for name in names], [name.relname for name in names]]
        rows = connection.execute(_SIZES, asked).fetchall()
    return {
        QualifiedName(nspname, relname): TableSize(size, count, QualifiedName(*part[0]))
        for nspname, relname, size, count, part in rows
    }


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
