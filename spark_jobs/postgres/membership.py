"""What makes a table's changes come through the slot, as one word per table: a break shows as another word.

While a table is not in the publication its changes are not sent, and nobody tells. But each entry in
``pg_publication_rel`` has an OID of its own, so a table that was taken out and put back has another one, as has a
publication, or a table, that was dropped and made anew. A snapshot keeps the word it was taken under.
https://www.postgresql.org/docs/current/catalog-pg-publication-rel.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from psycopg import sql

from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.qualified_name import QualifiedName

# entries of the table itself, of the roots it is a partition of, of their schemas (15+), and FOR ALL TABLES
_ENTRIES = """
WITH wanted AS (
  SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN (
    SELECT * FROM unnest(%(nspnames)s::text[]::name[], %(relnames)s::text[]::name[]))
), above AS (
  SELECT oid AS relid, oid AS member FROM wanted
  UNION SELECT w.oid, a.relid FROM wanted w, pg_catalog.pg_partition_ancestors(w.oid) a
), entry AS (
  SELECT a.relid, r.prpubid AS pubid, r.oid
  FROM above a JOIN pg_catalog.pg_publication_rel r ON r.prrelid = a.member
  UNION SELECT w.oid, p.oid, 0 FROM wanted w, pg_catalog.pg_publication p WHERE p.puballtables
  {schemas}
)
SELECT w.nspname::text, w.relname::text, w.oid::bigint,
  (SELECT string_agg(p.oid || '.' || e.oid, ' ' ORDER BY p.oid, e.oid) FROM entry e
   JOIN pg_catalog.pg_publication p ON p.oid = e.pubid WHERE e.relid = w.oid AND p.pubname = ANY (%(publications)s))
FROM wanted w
"""
_SCHEMAS = """UNION SELECT a.relid, s.pnpubid, s.oid FROM above a JOIN pg_catalog.pg_class c ON c.oid = a.member
  JOIN pg_catalog.pg_publication_namespace s ON s.pnnspid = c.relnamespace"""
_SCHEMAS_SINCE = 150_000


def memberships(
    connection: Connection, publications: Sequence[str], names: Sequence[QualifiedName]
) -> dict[QualifiedName, str]:
    """A word of 16 hexadecimal digits for each table that is there and in one of the publications."""
    schemas = _SCHEMAS if connection.info.server_version >= _SCHEMAS_SINCE else ""
    parameters = {
        "nspnames": [name.nspname for name in names],
        "relnames": [name.relname for name in names],
        "publications": list(publications),
    }
    with source_errors("the publications could not be read"):
        rows = connection.execute(sql.SQL(_ENTRIES).format(schemas=sql.SQL(schemas)), parameters).fetchall()
    return {
        QualifiedName(nspname, relname): membership(relid, entries)
        for nspname, relname, relid, entries in rows
        if entries
    }


def configured_memberships(
    relids: Mapping[QualifiedName, int], since: Mapping[QualifiedName, int]
) -> dict[QualifiedName, str]:
    """The same for test_decoding, which sends every table: the log keeps those that were configured. ``since``: the
    window from which on each one was, without a break."""
    return {name: membership(relid, f"window {since[name]}") for name, relid in relids.items()}


def membership(relid: int, entries: str) -> str:
    return hashlib.blake2b(f"{relid}: {entries}".encode(), digest_size=8).hexdigest()
