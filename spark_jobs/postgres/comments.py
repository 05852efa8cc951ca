"""What ``COMMENT ON`` says of tables and their columns.

https://www.postgresql.org/docs/current/catalog-pg-description.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.qualified_name import QualifiedName

_COMMENTS = """
SELECT n.nspname::text, c.relname::text, a.attname::text, d.description
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.classoid = 'pg_catalog.pg_class'::regclass
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid AND d.objsubid > 0
WHERE c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN (
  SELECT * FROM unnest(%s::text[]::name[], %s::text[]::name[]))
"""


@dataclass(frozen=True)
class Comments:
    """The comment on a table, empty if there is none; ``columns``: those on its columns, by name."""

    table: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


def comments_on(connection: Connection, names: Sequence[QualifiedName]) -> Mapping[QualifiedName, Comments]:
    """Of the tables that have any. Raises SourceError."""
    with source_errors("the comments on tables could not be read"):
        parameters = [[name.nspname for name in names], [name.relname for name in names]]
        rows = connection.execute(_COMMENTS, parameters).fetchall()
    tables: dict[QualifiedName, str] = {}
    columns: dict[QualifiedName, dict[str, str]] = {}
    for nspname, relname, attname, description in rows:
        name = QualifiedName(nspname, relname)
        if attname is None:
            tables[name] = description
        else:
            columns.setdefault(name, {})[attname] = description
    commented = dict.fromkeys([*tables, *columns])
    return {name: Comments(tables.get(name, ""), columns.get(name, {})) for name in commented}
