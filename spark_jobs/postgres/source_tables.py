"""Which tables the source has, whether changes of them can be replicated, and what our role may do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.errors import PreconditionError
from spark_jobs.postgres.catalogue import publishable_tables
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.partition_tree import partition_tree_sql
from spark_jobs.qualified_name import QualifiedName, names_like
from spark_jobs.schema.table_faults import foreign_fault, no_columns_fault, unlogged_fault

_TABLES = f"""
WITH RECURSIVE wanted AS (
  SELECT c.oid, c.relname, c.relkind, c.relowner, c.relispartition, n.nspname, n.oid AS relnamespace
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p')
    AND (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[]::name[], %s::text[]::name[]))
), {partition_tree_sql("wanted")}, whole AS (
  SELECT t.root, bool_and(has_table_privilege(t.member, 'SELECT')) AS may_select,
    min(p.oid::regclass::text) FILTER (WHERE p.relpersistence <> 'p') AS unlogged,
    min(p.oid::regclass::text) FILTER (WHERE p.relkind = 'f') AS foreign_partition
  FROM tree t JOIN pg_catalog.pg_class p ON p.oid = t.member GROUP BY t.root
)
SELECT w.nspname::text, w.relname::text, w.oid::bigint, whole.unlogged, whole.foreign_partition, EXISTS (
    SELECT FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = w.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''),
  w.relkind = 'p', has_schema_privilege(w.relnamespace, 'USAGE'), whole.may_select, pg_has_role(w.relowner, 'USAGE'),
  row_security_active(w.oid), CASE WHEN w.relispartition THEN ARRAY(
    SELECT ARRAY[n.nspname::text, c.relname::text] FROM pg_catalog.pg_partition_ancestors(w.oid) above(relid)
    JOIN pg_catalog.pg_class c ON c.oid = above.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid <> w.oid) END
FROM wanted w JOIN whole ON whole.root = w.oid
"""  # noqa: S608  # a constant


@dataclass(frozen=True)
class SourceTable:
    """``unlogged``: the name of the table itself or of a partition, if one is unlogged or temporary;
    ``foreign_partition``: that of a partition that is a foreign table; otherwise None. ``has_columns``: it has any that
    are not generated. ``may_select``: from its partitions too, which snapshots read one by one. ``row_security``:
    policies may hide rows from the role. ``above``: the tables that it is a partition of."""

    name: QualifiedName
    relid: int
    unlogged: str | None
    foreign_partition: str | None
    has_columns: bool
    is_partitioned: bool
    may_use_schema: bool
    may_select: bool
    owns: bool
    row_security: bool
    above: tuple[QualifiedName, ...]

    @property
    def fault(self) -> PreconditionError | None:
        """Why the table cannot be followed, whether it is new or has been followed until now."""
        if self.unlogged is not None:
            return unlogged_fault(self.unlogged)
        if self.foreign_partition is not None:
            return foreign_fault(self.name, self.foreign_partition)
        return None if self.has_columns else no_columns_fault(self.name)


def source_tables(connection: Connection, names: Sequence[QualifiedName]) -> dict[QualifiedName, SourceTable]:
    """Those of ``names`` that exist, in this order. Faster than reading their facts. Raises SourceError."""
    with source_errors("the catalogue could not be read"):
        rows = connection.execute(_TABLES, [[n.nspname for n in names], [n.relname for n in names]]).fetchall()
    tables = {
        QualifiedName(nspname, relname): (relid, *rest, tuple(QualifiedName(*each) for each in above or ()))
        for nspname, relname, relid, *rest, above in rows
    }
    return {name: SourceTable(name, *tables[name]) for name in names if name in tables}


def require_tables(connection: Connection, names: Sequence[QualifiedName]) -> None:
    """Raises PreconditionError when one of the tables does not exist."""
    if missing := sorted(set(names) - source_tables(connection, names).keys()):
        raise no_table(connection, *missing)


def no_table(
    connection: Connection, *names: QualifiedName, others: Sequence[QualifiedName] | None = None
) -> PreconditionError:
    """The error about tables that do not exist. Its hint names those of the ``others`` that are most like them, by
    default of all ``publishable_tables``."""
    what = f"there is no table {', '.join(map(str, names))} in database {connection.info.dbname}"
    others = publishable_tables(connection) if others is None else others
    near = " or ".join(map(str, names_like(names, others)))
    guess = f"; did you mean {near}?" if near else ""
    return PreconditionError(what, hint=f"correct tables: in the configuration{guess}")
