"""The tables that a database has for its users."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.partition_tree import partition_tree_sql
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import FIRST_NORMAL_OID

# a partition is part of its root, and temporary tables are seen by their own session alone
_USER_TABLES = f"""
WITH RECURSIVE users AS (
  SELECT oid FROM pg_catalog.pg_class
  WHERE relkind IN ('r', 'p', 'f') AND NOT relispartition AND relpersistence <> 't' AND oid >= {FIRST_NORMAL_OID}
), {partition_tree_sql("users")}
SELECT n.nspname::text, c.relname::text, coalesce(sum(pg_catalog.pg_table_size(t.member)), 0)::bigint, c.relkind = 'f'
FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.root JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
GROUP BY n.nspname, c.relname, c.relkind ORDER BY n.nspname, c.relname
"""  # noqa: S608  # a constant


@dataclass(frozen=True)
class UserTable:
    """``bytes``: its size on disk, with its partitions and TOAST, without indexes."""

    name: QualifiedName
    bytes: int
    is_foreign: bool


def user_tables(connection: Connection) -> tuple[UserTable, ...]:
    """Every table that is not PostgreSQL's own, ordered by name, whatever the role may do with it. Raises
    SourceError."""
    with source_errors("the catalogue could not be read"):
        rows = connection.execute(_USER_TABLES).fetchall()
    return tuple(UserTable(QualifiedName(nspname, relname), *rest) for nspname, relname, *rest in rows)
