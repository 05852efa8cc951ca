"""What the catalogue says about tables to those who read them: comments, types, constraints, as psql's ``\\d`` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.qualified_name import QualifiedName

# of characters of a comment on a table or a column; more are not shown
_MOST = 4_000
# the bytes that begin a text as UTF-8, in hexadecimal. https://www.rfc-editor.org/rfc/rfc3629#section-4
_NEXT = "[89ab]."
_UTF_8 = "|".join(
    (
        "[0-7].",
        f"(?:c[2-9a-f]|d.){_NEXT}",
        f"(?:e0[ab].|e[1-9abcef]{_NEXT}|ed[89].){_NEXT}",
        f"(?:f0[9ab].|f[1-3]{_NEXT}|f48.){_NEXT}{_NEXT}",
    )
)


def comment_sql(relid: str, attnum: str) -> str:
    """The comment on a column, or with number 0 on the table, as an SQL expression; null if there is none. In an
    SQL_ASCII database, whose texts may be of any encoding, it ends where it is no UTF-8: the server would refuse all
    that the statement returns, and a cut at a number of characters is one at a number of bytes there."""
    return f"""(SELECT CASE WHEN whole IS DISTINCT FROM readable
      THEN convert_from(decode(readable, 'hex'), 'UTF8') || '...' ELSE text END
    FROM pg_catalog.pg_description d,
      LATERAL (SELECT CASE WHEN length(d.description) > {_MOST} THEN left(d.description, {_MOST - 3}) || '...'
        ELSE d.description END) AS cut(text),
      LATERAL (SELECT CASE current_setting('server_encoding') WHEN 'SQL_ASCII'
        THEN encode(convert_to(text, 'SQL_ASCII'), 'hex') END) AS bytes(whole),
      LATERAL (SELECT substring(whole FROM '^(?:{_UTF_8})*')) AS beginning(readable)
    WHERE d.objoid = {relid} AND d.classoid = 'pg_catalog.pg_class'::regclass AND d.objsubid = {attnum})"""  # noqa: S608


# a unique index on expressions has number 0 in place of a column's
_TABLES = f"""
SELECT n.nspname::text, c.relname::text, coalesce({comment_sql("c.oid", "0")}, ''),
  (SELECT coalesce(jsonb_agg(jsonb_build_array(a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
      coalesce({comment_sql("c.oid", "a.attnum")}, ''), a.attnotnull,
      EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
        AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)) ORDER BY a.attnum), '[]')
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  (SELECT coalesce(jsonb_agg(jsonb_build_array(there.nspname, other.relname,
      (SELECT jsonb_agg(a.attname ORDER BY own.place) FROM unnest(k.conkey) WITH ORDINALITY own(attnum, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = own.attnum),
      (SELECT jsonb_agg(a.attname ORDER BY their.place) FROM unnest(k.confkey) WITH ORDINALITY their(attnum, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = their.attnum)) ORDER BY k.conname),
      '[]')
    FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class other ON other.oid = k.confrelid
      JOIN pg_catalog.pg_namespace there ON there.oid = other.relnamespace
    WHERE k.conrelid = c.oid AND k.contype = 'f' AND k.conparentid = 0)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN (
  SELECT * FROM unnest(%s::text[]::name[], %s::text[]::name[]))
"""  # noqa: S608  # a constant


@dataclass(frozen=True)
class DescribedColumn:
    """``type``: with its modifier. ``unique``: by itself. ``comment`` is empty if there is none."""

    name: str
    type: str
    comment: str
    not_null: bool
    unique: bool


@dataclass(frozen=True)
class ForeignKey:
    """``columns`` refer to the columns ``referenced`` of ``table``, in the same order."""

    columns: tuple[str, ...]
    table: QualifiedName
    referenced: tuple[str, ...]


@dataclass(frozen=True)
class DescribedTable:
    """``comment`` is empty if there is none. ``columns``: all that the table has."""

    comment: str
    columns: tuple[DescribedColumn, ...]
    foreign_keys: tuple[ForeignKey, ...]


def described_tables(connection: Connection, names: Sequence[QualifiedName]) -> Mapping[QualifiedName, DescribedTable]:
    """Those of ``names`` that exist. Raises SourceError."""
    with source_errors("the tables' descriptions could not be read"):
        parameters = [[name.nspname for name in names], [name.relname for name in names]]
        rows = connection.execute(_TABLES, parameters).fetchall()
    return {
        QualifiedName(nspname, relname): DescribedTable(
            comment,
            tuple(DescribedColumn(*column) for column in columns),
            tuple(ForeignKey(tuple(own), QualifiedName(*table), tuple(their)) for *table, own, their in keys),
        )
        for nspname, relname, comment, columns, keys in rows
    }
