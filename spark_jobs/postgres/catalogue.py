"""Reads facts about tables from the system catalogue, all in one query for up to a hundred tables.

https://www.postgresql.org/docs/current/catalogs.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from spark_jobs.options.table_mask import TableMask
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.declared_keys import NO_DECLARED_KEYS, DeclaredKeys, declared_key_sql, declared_parameters
from spark_jobs.postgres.partition_tree import partition_tree_sql
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.masked_facts import masked_facts
from spark_jobs.schema.relation_facts import (
    FIRST_NORMAL_OID,
    FIRST_VARYING_OID,
    NOT_UTF_8,
    ColumnFacts,
    RelationFacts,
    TypeFacts,
    leaf_identities,
)
from spark_jobs.schema.wire_type import printed_otherwise

_Asked = TypeVar("_Asked")
Masks: TypeAlias = Mapping[QualifiedName, TableMask]
NO_MASKS: Masks = {}

# the query looks through the columns of all tables for each one
_AT_ONCE = 100

# Domains may be over domains, each with its own type modifier; the innermost one's counts, because the base
# type gets that one. A deferrable primary key can be violated inside a transaction, so it does not identify rows.
_FACTS = """
WITH RECURSIVE wanted AS (
  SELECT c.oid, c.relname, c.relreplident, n.nspname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND (c.oid = ANY (%(relids)s::oid[]) OR (n.nspname, c.relname) IN (
    SELECT * FROM unnest(%(nspnames)s::text[]::name[], %(relnames)s::text[]::name[])))
), attribute AS (
  SELECT a.* FROM pg_catalog.pg_attribute a JOIN wanted w ON w.oid = a.attrelid
  WHERE a.attnum > 0 AND NOT a.attisdropped
), {tree}, resolved (attrelid, attnum, typid, typmod) AS (
  SELECT attrelid, attnum, atttypid, atttypmod FROM attribute
  UNION ALL
  SELECT r.attrelid, r.attnum, t.typbasetype, t.typtypmod
  FROM resolved r JOIN pg_catalog.pg_type t ON t.oid = r.typid AND t.typtype = 'd'
), behind (attrelid, typid, whole, place) AS (
  SELECT attrelid, typid, 0::oid, 0 FROM resolved
  UNION
  SELECT b.attrelid, part.typid, b.typid, part.place
  FROM behind b JOIN pg_catalog.pg_type t ON t.oid = b.typid
    AND (t.oid >= %(first_varying_oid)s OR t.oid = ANY (%(printed_otherwise)s::oid[])), LATERAL (
    SELECT t.typbasetype, 1 WHERE t.typtype = 'd'
    UNION ALL SELECT t.typelem, 1 WHERE t.typelem <> 0 AND t.typtype <> 'd'
    UNION ALL SELECT r.rngsubtype, 1 FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid
    UNION ALL SELECT r.rngtypid, 1 FROM pg_catalog.pg_range r WHERE r.rngmultitypid = t.oid
    UNION ALL SELECT c.atttypid, c.attnum FROM pg_catalog.pg_attribute c
      WHERE t.typtype = 'c' AND c.attrelid = t.typrelid AND c.attnum > 0 AND NOT c.attisdropped
  ) AS part (typid, place)
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
      'attmissingval', (SELECT encode(CASE current_setting('server_encoding')
          WHEN 'SQL_ASCII' THEN convert_to(missing, 'SQL_ASCII') ELSE pg_catalog.textsend(missing) END, 'hex')
        FROM (SELECT (a.attmissingval::text::text[])[1] AS missing WHERE a.atthasmissing) m)) ORDER BY a.attnum)
    FROM attribute a JOIN resolved r USING (attrelid, attnum)
    JOIN pg_catalog.pg_type b ON b.oid = r.typid AND b.typtype <> 'd'
    JOIN pg_catalog.pg_proc p ON p.oid = b.typoutput JOIN pg_catalog.pg_namespace pn ON pn.oid = p.pronamespace
    WHERE a.attrelid = w.oid), '[]'),
  coalesce((SELECT jsonb_agg(jsonb_build_object(
      'typid', t.oid::bigint, 'typname', pg_catalog.format_type(t.oid, NULL), 'typtype', t.typtype,
      'typdelim', t.typdelim, 'typoutput', coalesce(o.probin || ':', '') || o.prosrc,
      'typsend', coalesce(coalesce(s.probin || ':', '') || s.prosrc, ''),
      'parts', coalesce((SELECT jsonb_agg(b.typid::bigint ORDER BY b.place) FROM behind b
        WHERE b.attrelid = w.oid AND b.whole = t.oid), '[]')) ORDER BY t.oid)
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_proc o ON o.oid = t.typoutput
    LEFT JOIN pg_catalog.pg_proc s ON s.oid = t.typsend
    WHERE (t.oid >= %(first_varying_oid)s OR t.oid = ANY (%(printed_otherwise)s::oid[]))
      AND t.oid IN (SELECT b.typid FROM behind b WHERE b.attrelid = w.oid)), '[]'),
  coalesce((SELECT jsonb_agg(DISTINCT CASE leaf.relreplident WHEN 'f' THEN NULL ELSE coalesce((
      SELECT jsonb_agg(a.attname ORDER BY a.attname)
      FROM pg_catalog.pg_index i, unnest(i.indkey::smallint[]) WITH ORDINALITY k(attnum, place)
      JOIN pg_catalog.pg_attribute a USING (attnum)
      WHERE i.indrelid = leaf.oid AND a.attrelid = leaf.oid AND i.indimmediate AND i.indisvalid
        AND k.place <= i.indnkeyatts
        AND CASE leaf.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END), '[]')
    END) FROM tree t JOIN pg_catalog.pg_class leaf ON leaf.oid = t.member AND leaf.relkind <> 'p'
    WHERE t.root = w.oid AND t.member <> w.oid), '[]'),
  coalesce({declared}, '[]')
FROM wanted w ORDER BY w.nspname, w.relname
""".replace("{declared}", declared_key_sql(relid="w.oid", nspname="w.nspname", relname="w.relname")).replace(
    "{tree}", partition_tree_sql("wanted")
)


_BELOW = f"""
WITH RECURSIVE {partition_tree_sql("unnest(%s::oid[]) given(oid)", inheriting=True)}
SELECT member::bigint, root::bigint FROM tree WHERE member <> root
"""  # noqa: S608  # a constant


def relation_facts(
    connection: Connection,
    *,
    relids: Sequence[int] = (),
    names: Sequence[QualifiedName] = (),
    keys: DeclaredKeys = NO_DECLARED_KEYS,
    masks: Masks = NO_MASKS,
) -> tuple[RelationFacts, ...]:
    """The facts of the tables given by relid or by name, ordered by name. Tables that do not exist are left out.

    ``keys``: the keys that the configuration declares; one without a matching unique index is left out. ``masks``: the
    masks in the configuration; masked columns are described as the text columns they become (``masked_facts``). Raises
    SourceError.
    """
    parts = [(part, ()) for part in _parts(relids)] + [((), part) for part in _parts(names)]
    relations: list[RelationFacts] = []
    with source_errors("the catalogue could not be read"):
        for some_relids, some_names in parts:
            parameters: dict[str, object] = {
                "relids": list(some_relids),
                "first_varying_oid": FIRST_VARYING_OID,
                "printed_otherwise": printed_otherwise(connection.info.server_version),
                "nspnames": [name.nspname for name in some_names],
                "relnames": [name.relname for name in some_names],
                **declared_parameters(keys),
            }
            relations += map(_facts, connection.execute(_FACTS, parameters).fetchall())
    return tuple(masked_facts(facts, masks.get(facts.name)) for facts in sorted(relations, key=attrgetter("name")))


def _parts(items: Sequence[_Asked]) -> Iterator[Sequence[_Asked]]:
    return (items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE))


# what FOR ALL TABLES publishes with publish_via_partition_root, as far as the role may look into the schema
_PUBLISHABLE = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition AND c.oid >= %s
  AND has_schema_privilege(n.oid, 'USAGE')
ORDER BY 1, 2
"""


def publishable_tables(connection: Connection) -> tuple[QualifiedName, ...]:
    """Every table of the database that a publication may hold, without partitions, in schemas that the role may use."""
    with source_errors("the catalogue could not be read"):
        return tuple(QualifiedName(*row) for row in connection.execute(_PUBLISHABLE, [FIRST_NORMAL_OID]).fetchall())


def relids_below(connection: Connection, relids: Sequence[int]) -> dict[int, int]:
    """The partitions and inheriting tables at any level below these tables: by OID, the given table it is below."""
    with source_errors("the catalogue could not be read"):
        return dict(connection.execute(_BELOW, [list(relids)]).fetchall())


def _column_facts(fields: dict[str, Any]) -> ColumnFacts:
    """The missing value comes as bytes: it need not be UTF-8, and what follows decides what becomes of that."""
    missing = fields.pop("attmissingval")
    text = None if missing is None else bytes.fromhex(missing).decode(errors=NOT_UTF_8)
    return ColumnFacts(**fields, attmissingval=text)


def _facts(row: tuple[Any, ...]) -> RelationFacts:
    relid, nspname, relname, relreplident, primary_key, replica_identity, columns, types, leaves, declared = row
    return RelationFacts(
        relid,
        nspname,
        relname,
        relreplident,
        tuple(primary_key),
        tuple(replica_identity),
        tuple(map(_column_facts, columns)),
        tuple(TypeFacts(**{**fields, "parts": tuple(fields["parts"])}) for fields in types),
        leaf_identities(leaves),
        tuple(declared),
    )
