"""Keys that the configuration declares, and the unique indexes that make them keys.

A table with ``REPLICA IDENTITY FULL`` and no primary key may have a unique index over NOT NULL columns, which identify
its rows. They are a key only while that index exists, so it is looked up with the table's facts, and its OID is part of
the table's fingerprint. https://www.postgresql.org/docs/current/catalog-pg-index.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from spark_jobs.qualified_name import QualifiedName

DeclaredKeys: TypeAlias = Mapping[QualifiedName, tuple[str, ...]]
NO_DECLARED_KEYS: DeclaredKeys = {}

# {column} of the declared key of the table that {relid}, {nspname} and {relname} stand for, if a unique index supports
# it. A NOT NULL constraint that is not validated (since PostgreSQL 18) may leave nulls in place. REINDEX CONCURRENTLY
# gives an index a new OID, but its constraint keeps the old one
_DECLARED = """(
  SELECT {column} FROM unnest(
      %(key_nspnames)s::text[]::name[], %(key_relnames)s::text[]::name[], %(keys)s::text[]) AS d(nspname, relname, key)
    JOIN pg_catalog.pg_index i ON i.indrelid = {relid}
  WHERE d.nspname = {nspname} AND d.relname = {relname} AND i.indisunique AND i.indimmediate AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL
    AND (SELECT jsonb_agg(CASE WHEN a.attnotnull AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_constraint n WHERE n.conrelid = i.indrelid AND n.contype = 'n'
              AND NOT n.convalidated AND a.attnum = ANY (n.conkey)
          ) THEN a.attname END ORDER BY a.attname)
        FROM unnest(i.indkey::smallint[]) WITH ORDINALITY k(attnum, place)
        JOIN pg_catalog.pg_attribute a USING (attnum) WHERE a.attrelid = i.indrelid AND k.place <= i.indnkeyatts)
      = (SELECT jsonb_agg(name ORDER BY name::name) FROM jsonb_array_elements_text(d.key::jsonb) AS e(name))
  ORDER BY i.indexrelid LIMIT 1)"""
_CONSTRAINT_OR_INDEX = """coalesce((SELECT u.oid FROM pg_catalog.pg_constraint u
    WHERE u.conrelid = i.indrelid AND u.conindid = i.indexrelid AND u.contype = 'u'), i.indexrelid)::bigint"""


def declared_key_sql(*, relid: str, nspname: str, relname: str) -> str:
    """An SQL expression: the declared key as jsonb, null where no unique index supports it."""
    return _DECLARED.format(column="d.key::jsonb", relid=relid, nspname=nspname, relname=relname)


def declared_index_sql(*, relid: str, nspname: str, relname: str) -> str:
    """An SQL expression: the OID of the unique constraint, or else of the unique index, behind the declared key."""
    return _DECLARED.format(column=_CONSTRAINT_OR_INDEX, relid=relid, nspname=nspname, relname=relname)


def declared_parameters(keys: DeclaredKeys) -> dict[str, object]:
    """The query parameters that both expressions need."""
    return {
        "key_nspnames": [name.nspname for name in keys],
        "key_relnames": [name.relname for name in keys],
        "keys": [json.dumps(key) for key in keys.values()],
    }
