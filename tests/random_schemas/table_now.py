"""What a random table looks like at this moment, in this transaction: asked of the catalogue, never remembered."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

Connection = psycopg.Connection[tuple[object, ...]]

_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND a.attnum = ANY (i.indkey::int2[])) AS indexed
FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_TABLE = """
SELECT c.relreplident::text, c.relkind = 'p',
  (SELECT i.indexrelid::regclass::text FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
FROM pg_class c WHERE c.oid = %s::regclass
"""


@dataclass(frozen=True)
class ColumnNow:
    """``indexed``: part of a key or of an index that may be the identity."""

    name: str
    type: str
    not_null: bool
    indexed: bool

    @property
    def quoted(self) -> str:
        return sql.Identifier(self.name).as_string(None)


@dataclass(frozen=True)
class TableNow:
    """``primary_key``: the name of its index. ``identity``: ``relreplident``."""

    name: str
    columns: tuple[ColumnNow, ...]
    identity: str
    is_partitioned: bool
    primary_key: str | None

    @classmethod
    def of(cls, connection: Connection, name: str) -> TableNow:
        columns = connection.execute(_COLUMNS, [name]).fetchall()
        ((identity, is_partitioned, primary_key),) = connection.execute(_TABLE, [name]).fetchall()
        return cls(
            name,
            tuple(ColumnNow(*column) for column in columns),  # type: ignore[arg-type]
            str(identity),
            bool(is_partitioned),
            None if primary_key is None else str(primary_key),
        )

    @property
    def sends_whole_rows(self) -> bool:
        return self.identity == "f"

    @property
    def free_columns(self) -> tuple[ColumnNow, ...]:
        """Those that no index has, less ``number``."""
        return tuple(column for column in self.columns if not column.indexed and column != self.number)

    @property
    def number(self) -> ColumnNow:
        """The first column of an integer type: each table begins with one, which is never retyped or dropped."""
        return next(column for column in self.columns if column.type in ("integer", "bigint"))
