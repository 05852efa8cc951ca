"""Which tables belong to a publication: the one place that reads this from the catalogue.

Three questions rest on it: what a publication sends (``publication``), what is sent of a table (``published_tables``),
and whether that has changed (``fingerprints``). The view ``pg_publication_tables`` answers them only for the present,
whatever the transaction's snapshot; a table's own snapshot needs the state at its LSN. Since PostgreSQL 16 the view
also locks each table, and waits while one is altered. So the catalogue's tables are read with plain SQL, and a test
compares the answers with the view's, on every version and for every kind of publication.
"""

from __future__ import annotations

from psycopg import sql

# the version that introduced row filters, column lists and whole schemas. Tables that are published through a schema,
# or FOR ALL TABLES, have neither filter nor list
SCHEMAS_AND_LISTS_SINCE = 150_000
# the version that introduced FOR ALL TABLES EXCEPT (TABLE ...), whose rows in pg_publication_rel are no members
EXCEPT_SINCE = 190_000

_LISTED = """
  SELECT r.prpubid AS pubid, c.relid, r.oid AS entry, true AS by_name
  FROM candidate c JOIN pg_catalog.pg_publication_rel r ON r.prrelid = c.relid JOIN pub p ON p.oid = r.prpubid
  WHERE NOT {excluded}"""
_IN_SCHEMA = """
  UNION ALL SELECT s.pnpubid, c.relid, s.oid, false
  FROM candidate c JOIN pg_catalog.pg_publication_namespace s ON s.pnnspid = c.relnamespace
  JOIN pub p ON p.oid = s.pnpubid"""
# only a root can be excluded, with its partitions: a partition cannot, and an excluded table cannot become a partition
_OF_ALL_TABLES = """
  UNION ALL SELECT p.oid, c.relid, 0::oid, false
  FROM candidate c, pub p WHERE p.puballtables AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid
      AND r.prrelid = coalesce(pg_catalog.pg_partition_root(c.relid), c.relid) AND {excluded})"""


def members_sql(server_version: int) -> sql.Composed:
    """A query for (pubid, relid, entry, by_name): each reason for which a table belongs to a publication.

    It selects from two queries of the statement around it: ``pub``, rows of pg_publication, and ``candidate`` (relid,
    relnamespace), the tables in question. A partition that belongs through the table above it has no row of its own.
    ``entry`` is the OID of the publication's row for the table or its schema, 0 for all tables; ``by_name``: the table.
    """
    parts = [_LISTED, *([_IN_SCHEMA] if server_version >= SCHEMAS_AND_LISTS_SINCE else []), _OF_ALL_TABLES]
    return sql.SQL("".join(parts)).format(excluded=excluded_sql(server_version))


def excluded_sql(server_version: int) -> sql.SQL:
    """Whether ``r``, a row of pg_publication_rel, names a table that is not sent."""
    return sql.SQL("r.prexcept" if server_version >= EXCEPT_SINCE else "false")
