"""Reads the fingerprints of followed tables: the part of the catalogue that shows changes without a row event.

One statement for all tables returns a hash ("word") for each, and which comments there are; the text behind these is
read only when one of them has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from spark_jobs.errors import PreconditionError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mask import TableMask
from spark_jobs.postgres.catalogue import Masks
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.declared_keys import DeclaredKeys, declared_index_sql, declared_parameters
from spark_jobs.postgres.described_tables import comment_sql
from spark_jobs.postgres.partition_tree import partition_tree_sql
from spark_jobs.postgres.publication_members import SCHEMAS_AND_LISTS_SINCE, members_sql
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import THROUGH, Fingerprint
from spark_jobs.schema.relation_facts import FIRST_NORMAL_OID

# CREATE TABLE ... PARTITION OF writes its pg_inherits row two commands after the rows of the system columns. With
# CREATE TABLE and ATTACH PARTITION in one transaction they are further apart (PostgreSQL 14 to 19)
_FINGERPRINTS = """
WITH RECURSIVE asked AS (
  SELECT * FROM unnest(%(nspnames)s::text[]::name[], %(relnames)s::text[]::name[], %(notes)s::text[], %(masks)s::text[])
    AS a(nspname, relname, note, mask)
), wanted AS (
  SELECT c.oid AS relid, a.nspname, a.relname, a.note, a.mask, CASE WHEN c.relispartition
    THEN ARRAY(SELECT r.relid::oid FROM pg_catalog.pg_partition_ancestors(c.oid) r(relid)) ELSE ARRAY[c.oid] END AS line
  FROM asked a
  JOIN pg_catalog.pg_namespace n ON n.nspname = a.nspname
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = a.relname AND c.relkind IN ('r', 'p')
), {tree}, placed AS (
  SELECT t.root AS relid, t.member, coalesce(i.inhparent, 0) AS parent, coalesce(i.xmin::text::bigint, 0) AS attached,
    coalesce(i.cmin::text::bigint, 0) AS command, coalesce(i.inhdetachpending, false) AS leaving
  FROM tree t LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = t.member AND t.member <> t.root
), part AS (
  SELECT t.relid, jsonb_agg(jsonb_build_array(c.oid::bigint, n.nspname, c.relname, c.relpersistence,
      t.parent::bigint, t.attached,
      EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = -6
        AND a.xmin::text::bigint = t.attached AND t.command - a.cmin::text::bigint = 2),
      c.relfilenode::bigint, c.reltoastrelid::bigint, c.xmin::text::bigint,
      (SELECT string_agg(seen, ' ' ORDER BY seen) FROM (
        SELECT a.attnum || ':' || a.xmin::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        UNION ALL SELECT 'd' || d.adnum || ':' || d.xmin::text FROM pg_catalog.pg_attrdef d WHERE d.adrelid = c.oid
      ) AS x(seen)),
      (SELECT string_agg(d.xmin::text, ' ' ORDER BY d.xmin::text::bigint) FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
          AND d.refclassid = 'pg_catalog.pg_namespace'::regclass)
        || CASE WHEN %(by_name)s THEN ' ' || (SELECT y.xmin::text FROM pg_catalog.pg_type y WHERE y.oid = c.reltype)
                ELSE '' END,
      CASE WHEN t.parent <> 0 THEN c.relreplident::text || ' ' ELSE '' END || coalesce((
        SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.place)
        FROM pg_catalog.pg_index i, unnest(i.indkey::smallint[]) WITH ORDINALITY k(attnum, place)
        JOIN pg_catalog.pg_attribute a USING (attnum)
        WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND i.indimmediate AND i.indisvalid
          AND k.place <= i.indnkeyatts
          AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'n' THEN false ELSE i.indisprimary END), ''),
      coalesce((SELECT jsonb_agg(i.indexrelid::text || ':' || i.xmin::text || ':' || i.indisclustered
          ORDER BY i.indexrelid)
        FROM pg_catalog.pg_index i
        WHERE (t.parent <> 0 OR %(by_name)s) AND i.indrelid = c.oid AND i.indisunique AND i.indimmediate
          AND i.indpred IS NULL), '[]'),
      (SELECT k.oid::bigint FROM pg_catalog.pg_constraint k
        WHERE k.conrelid = c.oid AND k.contype = 'p'
          AND (c.relreplident = 'f' OR c.relkind = 'p' OR %(by_name)s AND c.relreplident = 'd')),
      {declared_index}
    ) || CASE WHEN t.parent = 0 AND c.relkind <> 'p' AND NOT c.relispartition THEN '[]' ELSE jsonb_build_array(
      CASE WHEN NOT t.leaving THEN pg_catalog.pg_get_expr(c.relpartbound, 0) END,
      {partition_key}
    ) END ORDER BY c.oid) AS parts
  FROM placed t JOIN pg_catalog.pg_class c ON c.oid = t.member JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  GROUP BY t.relid
), used (relid, typid) AS (
  SELECT w.relid, a.atttypid FROM wanted w JOIN pg_catalog.pg_attribute a ON a.attrelid = w.relid
  WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= {first_normal_oid}
  UNION
  SELECT u.relid, behind.typid FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.typid, LATERAL (
    SELECT t.typbasetype WHERE t.typtype = 'd'
    UNION ALL SELECT t.typelem WHERE t.typelem <> 0 AND t.typtype <> 'd'
    UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid
    UNION ALL SELECT r.rngtypid FROM pg_catalog.pg_range r WHERE r.rngmultitypid = t.oid
    UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
      WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
  ) AS behind(typid) WHERE behind.typid >= {first_normal_oid}
), pub AS (
  SELECT p.*, p.xmin FROM pg_catalog.pg_publication p WHERE p.pubname = ANY (%(publications)s)
), candidate AS (
  SELECT c.oid AS relid, c.relnamespace FROM pg_catalog.pg_class c
  WHERE c.oid IN (SELECT unnest(line) FROM wanted)
), member AS ({members}
), published AS (
  SELECT relid, bool_or(by_name) AS by_name,
    string_agg(oid || ':' || xmin::text || ':' || entry, ' ' ORDER BY oid, entry)
      || CASE WHEN bool_or(itself) THEN '' ELSE min(through) END AS entries
  FROM (
    SELECT line.relid, m.pubid AS oid, (SELECT pub.xmin FROM pub WHERE pub.oid = m.pubid), m.entry,
      bool_or(m.by_name AND m.relid = line.relid) AS by_name, bool_or(m.relid = line.relid) AS itself, line.through
    FROM (SELECT relid, unnest(line) AS member, {through} AS through FROM wanted) AS line
    JOIN member m ON m.relid = line.member GROUP BY line.relid, m.pubid, m.entry, line.through
  ) AS m GROUP BY relid
), typed AS (
  SELECT u.relid, jsonb_agg(jsonb_build_array(t.oid::bigint, t.typname,
      (SELECT coalesce(jsonb_agg(jsonb_build_array(l.oid::bigint, l.enumlabel, l.xmin::text) ORDER BY l.oid), '[]')
       FROM pg_catalog.pg_enum l WHERE l.enumtypid = t.oid),
      (SELECT coalesce(jsonb_agg(jsonb_build_array(a.attnum, a.atttypid::bigint) ORDER BY a.attnum), '[]')
       FROM pg_catalog.pg_attribute a WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0)
    ) ORDER BY t.oid) AS types
  FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.typid WHERE t.typtype IN ('e', 'c') GROUP BY u.relid
), form AS (
  SELECT w.relid, w.nspname, w.relname, jsonb_build_array(w.relid::bigint, w.nspname, w.relname,
    coalesce(e.entries, '') || w.note, coalesce(e.by_name, false),
    (SELECT coalesce(jsonb_agg(jsonb_build_array(a.attnum, a.attname, a.atttypid::bigint, a.atttypmod)
          || CASE a.attgenerated WHEN '' THEN '[]' ELSE '["s"]'::jsonb END
        ORDER BY a.attnum), '[]') FROM pg_catalog.pg_attribute a
     WHERE a.attrelid = w.relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated IN ('', 's'){listed}),
    p.parts,
    coalesce(y.types, '[]')
  ) || w.mask::jsonb AS body,
  coalesce((SELECT string_agg(d.objsubid || ':' || d.xmin::text, ' ' ORDER BY d.objsubid)
    FROM pg_catalog.pg_description d
    WHERE d.objoid = w.relid AND d.classoid = 'pg_catalog.pg_class'::regclass), '') AS comments
  FROM wanted w JOIN part p USING (relid) LEFT JOIN published e USING (relid) LEFT JOIN typed y USING (relid)
)
SELECT w.nspname::text, w.relname::text, w.relid::bigint,
  left(encode(sha256(convert_to(w.body::text, 'UTF8')), 'hex'), 16), w.comments,
  CASE WHEN %(whole)s THEN (w.body || jsonb_build_array({annotations}))::text END
FROM form w
"""
# {listed} as above; a longer comment is cut, as every change of a table's metadata repeats it in the table's log
_ANNOTATIONS = """
  jsonb_build_object('rows', w.comments, 'comment', {comment_of_table}, 'columns', (
    SELECT coalesce(jsonb_agg(jsonb_build_array(a.attnum, pg_catalog.format_type(a.atttypid, a.atttypmod),
      (SELECT k.place FROM pg_catalog.pg_index i, unnest(i.indkey::smallint[]) WITH ORDINALITY k(attnum, place)
        WHERE i.indrelid = w.relid AND i.indisprimary AND k.place <= i.indnkeyatts AND k.attnum = a.attnum),
      {comment_of_column}) ORDER BY a.attnum), '[]')
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = w.relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated IN ('', 's'){listed}))
"""
# columns that a column list leaves out do not count; all lists of a table are the same
_LISTED = """
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r JOIN pub ON pub.oid = r.prpubid
        WHERE r.prrelid = w.relid AND r.prattrs IS NOT NULL
          AND NOT a.attnum = ANY (r.prattrs::smallint[]))
"""
# the column's name is null where values are not compared by their type's default order and equality
_PARTITION_KEY = """(
  SELECT jsonb_build_array(p.partstrat, jsonb_agg(CASE WHEN o.opcdefault AND coalesce(l.collisdeterministic, true)
    THEN a.attname END ORDER BY k.place))
  FROM pg_catalog.pg_partitioned_table p
    CROSS JOIN unnest(p.partattrs::smallint[], p.partclass::oid[], p.partcollation::oid[])
      WITH ORDINALITY k(attnum, opclass, collation_oid, place)
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = k.attnum AND k.attnum > 0
    LEFT JOIN pg_catalog.pg_opclass o ON o.oid = k.opclass
    LEFT JOIN pg_catalog.pg_collation l ON l.oid = k.collation_oid
  WHERE p.partrelid = c.oid GROUP BY p.partstrat)"""
# what says that the tables above a partition are where they were: the rows of each one's place below another, and in a
# schema. A partition that only they are published by is not, while it is detached
_THROUGH = """
      {separator} || (SELECT string_agg(seen.xmin, ' ' ORDER BY seen.xmin) FROM (
        SELECT i.xmin::text FROM pg_catalog.pg_inherits i WHERE i.inhrelid = ANY (line)
        UNION ALL SELECT d.xmin::text FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = ANY (line) AND d.objsubid = 0
          AND d.refclassid = 'pg_catalog.pg_namespace'::regclass) AS seen(xmin))"""
# all transactions below it have ended
_HORIZON = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text"
_INSERT_LSN = """
SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
  ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text
"""
_XIDS = 1 << 32


@dataclass(frozen=True)
class Watched:
    """The tables to look at: ``names``, each with a note that is part of its fingerprint, and the ``keys`` and
    ``masks`` of the configuration.

    ``publications`` are those that send the changes. Without any, changes come ``by_name``, as with test_decoding.
    """

    names: tuple[QualifiedName, ...]
    publications: tuple[str, ...]
    notes: Mapping[QualifiedName, str]
    keys: DeclaredKeys = field(default_factory=dict)
    masks: Masks = field(default_factory=dict)

    @property
    def by_name(self) -> bool:
        return not self.publications


def fingerprint_words(connection: Connection, watched: Watched) -> dict[QualifiedName, tuple[int, str]]:
    """Relid and hash of the tables that exist. In a transaction, the catalogue is read as its snapshot shows it."""
    return {name: (relid, word) for name, (relid, word, _) in look_words(connection, watched).items()}


def look_words(connection: Connection, watched: Watched) -> dict[QualifiedName, tuple[int, str, str]]:
    """The same with ``Fingerprint.look_word``."""
    rows = _ask(connection, watched, whole=False)
    return {
        QualifiedName(nspname, relname): (relid, word, word + comments)
        for nspname, relname, relid, word, comments, _ in rows
    }


def fingerprints(connection: Connection, watched: Watched) -> dict[QualifiedName, Fingerprint]:
    """The fingerprints of the tables that exist. Raises SourceError."""
    of_tables = (Fingerprint.of(word, text) for *_, word, _, text in _ask(connection, watched, whole=True))
    return {fingerprint.name: fingerprint for fingerprint in of_tables}


def transaction_horizon(connection: Connection) -> int:
    """The xid (64 bits) below which all transactions have ended, so that what they committed is visible."""
    with source_errors("the catalogue could not be read"):
        return int(connection.execute(_HORIZON).fetchall()[0][0])


def insert_lsn(connection: Connection) -> Lsn:
    """The end of the WAL, flushed or not; on a standby, of the replayed WAL. All visible changes lie before it."""
    with source_errors("the end of the WAL could not be read"):
        return Lsn.parse(connection.execute(_INSERT_LSN).fetchall()[0][0])


def holds_rows_from_before(connection: Connection, name: QualifiedName, horizon: int) -> bool:
    """Whether this table, its partitions not included, has a row written by a transaction below ``horizon``.

    VACUUM FULL, CLUSTER and REPACK keep such rows; after a rewrite or a TRUNCATE all rows are newer. Also False when
    the role may not read the table, or when another session has locked it: waiting for the lock would hold up all
    tables.
    """
    named = sql.Identifier(name.nspname, name.relname)
    query = sql.SQL("SELECT EXISTS (SELECT FROM ONLY {} WHERE age(xmin) > age({}::text::xid))").format(
        named, sql.Literal(str(horizon % _XIDS))
    )
    try:
        with source_errors(f"{name} could not be read"):
            return _read_unless_locked(connection, named, query)
    except PreconditionError:
        return False


def _read_unless_locked(connection: Connection, named: sql.Identifier, query: sql.Composed) -> bool:
    try:
        with connection.transaction():
            connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE NOWAIT").format(named))
            return bool(connection.execute(query).fetchall()[0][0])
    except psycopg.errors.LockNotAvailable:
        return False


def _mask_json(mask: TableMask | None) -> str:
    """The last part of a fingerprint. It is empty without a mask, as fingerprints were before masks existed."""
    return "[]" if mask is None else json.dumps([[mask.salt_word, *sorted(mask.columns)]])


def _ask(connection: Connection, watched: Watched, *, whole: bool) -> list[tuple[str, str, int, str, str, str]]:
    known = connection.info.server_version >= SCHEMAS_AND_LISTS_SINCE
    listed = sql.SQL(_LISTED if known else "")
    of_table, of_column = sql.SQL(comment_sql("w.relid", "0")), sql.SQL(comment_sql("w.relid", "a.attnum"))
    annotations = sql.SQL(_ANNOTATIONS).format(comment_of_table=of_table, comment_of_column=of_column, listed=listed)
    statement = sql.SQL(_FINGERPRINTS).format(
        tree=sql.SQL(partition_tree_sql("(SELECT relid AS oid FROM wanted) roots")),
        members=members_sql(connection.info.server_version),
        listed=listed,
        annotations=annotations,
        first_normal_oid=sql.Literal(FIRST_NORMAL_OID),
        partition_key=sql.SQL(_PARTITION_KEY),
        through=sql.SQL(_THROUGH).format(separator=sql.Literal(THROUGH)),
        declared_index=sql.SQL(declared_index_sql(relid="c.oid", nspname="n.nspname", relname="c.relname")),
    )
    parameters = {
        "nspnames": [name.nspname for name in watched.names],
        "relnames": [name.relname for name in watched.names],
        "notes": [watched.notes.get(name, "") for name in watched.names],
        "masks": [_mask_json(watched.masks.get(name)) for name in watched.names],
        **declared_parameters(watched.keys),
        "publications": list(watched.publications),
        "by_name": watched.by_name,
        "whole": whole,
    }
    with source_errors("the catalogue could not be read"):
        rows: list[tuple[str, str, int, str, str, str]] = connection.execute(statement, parameters).fetchall()
    return rows
