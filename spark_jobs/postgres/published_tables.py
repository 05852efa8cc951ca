"""What a slot's publications send of each table: which columns, which rows, which operations.

Which tables belong to them: see ``publication_members``. In a snapshot's transaction, this too is the state at the
snapshot's LSN. The rules are those of pgoutput
(``get_rel_sync_entry``): columns must be the same in all publications; for each operation the row filters are ORed, and
a publication without one lets all rows pass.
https://www.postgresql.org/docs/current/logical-replication-row-filter.html
https://www.postgresql.org/docs/current/logical-replication-col-lists.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from spark_jobs.errors import PreconditionError
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.publication_members import SCHEMAS_AND_LISTS_SINCE, members_sql
from spark_jobs.qualified_name import QualifiedName, quoted_identifier
from spark_jobs.schema.relation_facts import RelationFacts

ColumnLists = Mapping[QualifiedName, tuple[str, ...]]
OPERATIONS = ("insert", "update", "delete", "truncate")

# one row per table and publication that sends the table's changes under its own name. A partition has no row if any of
# the publications sends its changes under its root's name
_PUBLISHED = """
WITH wanted AS (
  SELECT c.oid, n.nspname, c.relname, c.relkind,
    CASE WHEN c.relispartition THEN ARRAY(SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(c.oid) a(relid)
      WHERE a.relid <> c.oid) ELSE '{{}}' END AS above
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p')
    AND (n.nspname, c.relname) IN (SELECT * FROM unnest(%(nspnames)s::text[]::name[], %(relnames)s::text[]::name[]))
), pub AS MATERIALIZED (
  SELECT p.*, to_jsonb(p)->>'pubgencols' = 's' AS sends_generated,
    ARRAY(SELECT operation FROM (VALUES ('insert', p.pubinsert), ('update', p.pubupdate), ('delete', p.pubdelete),
      ('truncate', p.pubtruncate)) AS o(operation, sent) WHERE sent) AS operations
  FROM pg_catalog.pg_publication p WHERE p.pubname = ANY (%(publications)s)
), candidate AS (
  SELECT c.oid AS relid, c.relnamespace FROM pg_catalog.pg_class c
  WHERE c.oid IN (SELECT oid FROM wanted UNION SELECT unnest(above) FROM wanted)
), member AS MATERIALIZED ({members}
), published AS (
  SELECT w.oid, m.pubid, bool_or(m.relid <> w.oid) AS by_root
  FROM wanted w, LATERAL unnest(w.oid || w.above) AS line(relid) JOIN member m USING (relid) GROUP BY w.oid, m.pubid
), entry AS (
  SELECT w.*, p.oid AS pubid, p.pubname, p.pubviaroot, p.sends_generated, p.operations,
    bool_or(p.pubviaroot AND by_root) OVER (PARTITION BY w.oid) AS named_by_root
  FROM published JOIN wanted w USING (oid) JOIN pub p ON p.oid = published.pubid
)
SELECT e.nspname::text, e.relname::text, e.pubname::text, e.operations, {row_filter}, {listed},
  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = e.oid AND a.attnum > 0 AND NOT a.attisdropped
      AND CASE WHEN {listed} THEN {in_list}
          ELSE a.attgenerated = '' OR (a.attgenerated = 's' AND coalesce(e.sends_generated, false)) END
    ORDER BY a.attnum)
FROM entry e {of_entry}
WHERE (e.relkind = 'r' OR e.pubviaroot) AND NOT e.named_by_root
ORDER BY e.nspname, e.relname, e.pubname
"""
# a table that is published through its schema, too, has neither filter nor list
_OF_ENTRY = """
LEFT JOIN (member m JOIN pg_catalog.pg_publication_rel r ON r.oid = m.entry AND m.by_name)
  ON m.pubid = e.pubid AND m.relid = e.oid
  AND NOT EXISTS (SELECT FROM member s WHERE s.pubid = e.pubid AND s.relid = e.oid AND NOT s.by_name)
"""


@dataclass(frozen=True)
class PublishedTable:
    """``columns``: those that are sent, in ``attnum`` order; ``listed``: a column list chooses them. ``row_filter`` is
    an SQL condition, empty for all rows. ``missing_operations``: those that no publication sends. ``error``: why the
    table cannot be followed through these publications together. ``publication``: the first of those that send it.
    """

    name: QualifiedName
    columns: tuple[str, ...]
    listed: bool = False
    row_filter: str = ""
    missing_operations: tuple[str, ...] = ()
    error: PreconditionError | None = None
    publication: str = ""

    def sent_of(self, facts: RelationFacts) -> RelationFacts:
        """The facts, without the columns that are not sent."""
        return replace(facts, columns=tuple(column for column in facts.columns if column.attname in self.columns))


def create_publication(publication: str, tables: Sequence[QualifiedName], lists: ColumnLists) -> str:
    """For a hint: the statement with which sync would create it."""
    entries = (f"ONLY {table}{_listed(lists[table]) if table in lists else ''}" for table in tables)
    return (
        f"CREATE PUBLICATION {quoted_identifier(publication)} FOR TABLE {', '.join(entries)}"
        " WITH (publish_via_partition_root = true)"
    )


def _listed(columns: Sequence[str]) -> str:
    return f" ({', '.join(map(quoted_identifier, columns))})"


def add_table(publication: str) -> str:
    """For a hint; the tables follow."""
    return f"ALTER PUBLICATION {quoted_identifier(publication)} ADD TABLE"


def publish_all(publication: str) -> str:
    """For a hint."""
    return f"ALTER PUBLICATION {quoted_identifier(publication)} SET (publish = 'insert, update, delete, truncate')"


@dataclass(frozen=True)
class _Entry:
    """One table in one publication. ``row_filter`` None: all rows."""

    publication: str
    operations: tuple[str, ...]
    row_filter: str | None
    listed: bool
    columns: tuple[str, ...]


def published_tables(
    connection: Connection, publications: Sequence[str], names: Sequence[QualifiedName], *, for_reading: bool = True
) -> dict[QualifiedName, PublishedTable]:
    """What is sent of each of ``names`` whose changes are sent under its own name. In a transaction, the catalogue is
    read as its snapshot shows it.

    With ``for_reading`` False this waits for no table lock, but row filters are not SQL: they can only be compared with
    one another. Raises SourceError.
    """
    with source_errors("the publications could not be read"):
        statement = _statement(connection, for_reading=for_reading)
        rows = connection.execute(statement, _parameters(publications, names)).fetchall()
    entries: dict[QualifiedName, list[_Entry]] = {}
    for nspname, relname, publication, operations, row_filter, listed, columns in rows:
        entry = _Entry(publication, tuple(operations), row_filter, listed, tuple(columns))
        entries.setdefault(QualifiedName(nspname, relname), []).append(entry)
    return {name: _together(name, of_table) for name, of_table in entries.items()}


def unseen_operations(missing: Sequence[str]) -> str:
    """One line about the operations on a table that the lake does not see."""
    return f"the publication leaves out {', '.join(missing)}: the lake does not see them"


def _statement(connection: Connection, *, for_reading: bool) -> sql.Composed:
    known = connection.info.server_version >= SCHEMAS_AND_LISTS_SINCE
    return sql.SQL(_PUBLISHED).format(
        members=members_sql(connection.info.server_version),
        of_entry=sql.SQL(_OF_ENTRY if known else ""),
        row_filter=sql.SQL(_row_filter(connection.info.server_version, for_reading=for_reading)),
        listed=sql.SQL("r.prattrs IS NOT NULL" if known else "false"),
        in_list=sql.SQL("a.attnum = ANY (r.prattrs::smallint[])" if known else "false"),
    )


def _row_filter(server_version: int, *, for_reading: bool) -> str:
    """``pg_get_expr`` locks the table, and waits while it is altered. The stored expression needs no lock, but also
    holds positions in the statement's text, which are removed."""
    if server_version < SCHEMAS_AND_LISTS_SINCE:
        return "NULL::text"
    if for_reading:
        return "pg_catalog.pg_get_expr(r.prqual, r.prrelid)"
    return "regexp_replace(r.prqual::text, ' :location -?[0-9]+', '', 'g')"


def _parameters(publications: Sequence[str], names: Sequence[QualifiedName]) -> dict[str, Any]:
    return {
        "publications": list(publications),
        "nspnames": [name.nspname for name in names],
        "relnames": [name.relname for name in names],
    }


def _together(name: QualifiedName, entries: Sequence[_Entry]) -> PublishedTable:
    """What all publications together send of one table."""
    sent = {operation for entry in entries for operation in entry.operations}
    filters = {operation: _filters(entries, operation) for operation in OPERATIONS[:3] if operation in sent}
    return PublishedTable(
        name,
        entries[0].columns,
        any(entry.listed for entry in entries),
        " OR ".join(f"({condition})" for condition in next(iter(filters.values()), ())),
        tuple(operation for operation in OPERATIONS if operation not in sent),
        _why_not_together(name, entries, sent, filters),
        entries[0].publication,
    )


def _filters(entries: Sequence[_Entry], operation: str) -> tuple[str, ...]:
    """The row filters for this operation, of which a row must meet one; empty: every row is sent."""
    conditions = {entry.row_filter for entry in entries if operation in entry.operations}
    return () if None in conditions else tuple(sorted(condition for condition in conditions if condition is not None))


def _why_not_together(
    name: QualifiedName, entries: Sequence[_Entry], sent: set[str], filters: dict[str, tuple[str, ...]]
) -> PreconditionError | None:
    publications = ", ".join(entry.publication for entry in entries)
    if len({entry.columns for entry in entries}) > 1:
        return PreconditionError(
            f"publications {publications} send different columns of {name}, which the server refuses to do",
            hint="give it the same column list in each before its rows change: changes made until then can no longer be"
            " decoded",
        )
    if len(set(filters.values())) > 1:
        return PreconditionError(
            f"publications {publications} have different row filters on {name} for different operations",
            hint="publish insert, update and delete of a table with the same filters",
        )
    if "insert" not in sent:
        return PreconditionError(
            f"publication {publications} leaves out insert, so new rows of {name} are never sent",
            hint=publish_all(entries[0].publication),
        )
    return None
