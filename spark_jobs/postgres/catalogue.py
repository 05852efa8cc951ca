"""What the system catalogue says of tables, as frozen facts, in one query.

https://www.postgresql.org/docs/current/catalogs.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_jobs.errors import PreconditionError
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.relation_facts import ColumnFacts, RelationFacts

# Domains may be of domains, each with a modifier of its own: the innermost domain's counts, as it is the one that the
# base type sees. A primary key that is deferrable can be violated inside a transaction, so it identifies no row.
_FACTS = """
WITH RECURSIVE wanted AS (
  SELECT c.oid, c.relname, c.relreplident, n.nspname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND (c.oid = ANY (%(relids)s::oid[]) OR (n.nspname, c.relname) IN (
    SELECT * FROM unnest(%(nspnames)s::text[]::name[], %(relnames)s::text[]::name[])))
), attribute AS (
  SELECT a.* FROM pg_catalog.pg_attribute a JOIN wanted w ON w.oid = a.attrelid
  WHERE a.attnum > 0 AND NOT a.attisdropped
), resolved (attrelid, attnum, typid, typmod) AS (
  SELECT attrelid, attnum, atttypid, atttypmod FROM attribute
  UNION ALL
  SELECT r.attrelid, r.attnum, t.typbasetype, t.typtypmod
  FROM resolved r JOIN pg_catalog.pg_type t ON t.oid = r.typid AND t.typtype = 'd'
)
SELECT w.oid::bigint, w.nspname::text, w.relname::text, w.relreplident::text,
  coalesce((SELECT jsonb_agg(a.attname ORDER BY k.place)
    FROM pg_catalog.pg_index i, unnest(i.indkey::smallint[]) WITH ORDINALITY k(attnum, place)
    JOIN attribute a USING (attnum)
    WHERE i.indrelid = w.oid AND a.attrelid = w.oid AND i.indisprimary AND i.indimmediate AND i.indisvalid
      AND k.place <= i.indnkeyatts), '[]'),
  coalesce((SELECT jsonb_agg(a.attname ORDER BY k.place)
    FROM pg_catalog.pg_index i, unnest(i.indkey::smallint[]) WITH ORDINALITY k(attnum, place)
    JOIN attribute a USING (attnum)
    WHERE i.indrelid = w.oid AND a.attrelid = w.oid AND i.indimmediate AND i.indisvalid AND k.place <= i.indnkeyatts
      AND CASE w.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END), '[]'),
  coalesce((SELECT jsonb_agg(jsonb_build_object(
      'attnum', a.attnum, 'attname', a.attname, 'atttypid', a.atttypid::bigint, 'atttypmod', a.atttypmod,
      'typname', pg_catalog.format_type(a.atttypid, NULL),
      'base_typid', r.typid::bigint, 'base_typmod', r.typmod,
      'typoutput', format('%%I.%%I', pn.nspname, p.proname),
      'attnotnull', a.attnotnull, 'attgenerated', a.attgenerated,
      'attmissingval', CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END) ORDER BY a.attnum)
    FROM attribute a JOIN resolved r USING (attrelid, attnum)
    JOIN pg_catalog.pg_type b ON b.oid = r.typid AND b.typtype <> 'd'
    JOIN pg_catalog.pg_proc p ON p.oid = b.typoutput JOIN pg_catalog.pg_namespace pn ON pn.oid = p.pronamespace
    WHERE a.attrelid = w.oid), '[]')
FROM wanted w ORDER BY w.nspname, w.relname
"""


def relation_facts(
    connection: Connection, *, relids: Sequence[int] = (), names: Sequence[QualifiedName] = ()
) -> tuple[RelationFacts, ...]:
    """The facts of these tables, by relid or by name, ordered by name; a table that is not there is left out."""
    parameters = {
        "relids": list(relids),
        "nspnames": [name.nspname for name in names],
        "relnames": [name.relname for name in names],
    }
    with source_errors("the catalogue could not be read"):
        rows = connection.execute(_FACTS, parameters).fetchall()
    return tuple(_facts(row) for row in rows)


def facts_by_name(connection: Connection, names: Sequence[QualifiedName]) -> tuple[RelationFacts, ...]:
    """Like ``relation_facts``, but raises PreconditionError when a table is not there."""
    facts = relation_facts(connection, names=names)
    missing = sorted(set(names) - {fact.name for fact in facts})
    if missing:
        raise PreconditionError(
            f"there is no table {', '.join(map(str, missing))} in database {connection.info.dbname}",
            hint="correct tables: in the configuration",
        )
    return facts


def _facts(row: tuple[Any, ...]) -> RelationFacts:
    relid, nspname, relname, relreplident, primary_key, replica_identity, columns = row
    return RelationFacts(
        relid,
        nspname,
        relname,
        relreplident,
        tuple(primary_key),
        tuple(replica_identity),
        tuple(ColumnFacts(**column) for column in columns),
    )
