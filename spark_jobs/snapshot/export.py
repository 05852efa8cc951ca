"""Exports a snapshot whose LSN is known exactly, and divides tables into the ranges that are read in it.

https://www.postgresql.org/docs/current/protocol-replication.html (CREATE_REPLICATION_SLOT)
https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-SNAPSHOT-SYNCHRONIZATION
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, TypeAlias

from psycopg import sql

from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mask import TableMask
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts
from spark_jobs.snapshot.range_read import RangeQuery
from spark_jobs.snapshot.snapshot_column import SEND_FUNCTIONS, ReadForm, SnapshotColumn, read_form

# each range is read by one statement; with a quarter of this, a snapshot by executors took 1.3 times as long
RANGE_BYTES = 64 << 20
# so that a table of 140 MB keeps more than three of a cluster's cores busy
RANGES_FOR_EXECUTORS = 64
_SHORT_RANGE_BYTES = 8 << 20
_BLOCK_BYTES = 8192
_FILE = "SELECT relfilenode::text FROM pg_catalog.pg_class WHERE oid = {}::oid"
# each xmin is the transaction that last changed the catalogue's row for a column or its default. REPACK (CONCURRENTLY),
# since PostgreSQL 19, changes none of these, only the TOAST table's OID. Without one, nothing but the file tells
_FORM = """
SELECT md5(string_agg(part, ' ' ORDER BY part)) FROM (SELECT {}::oid) AS leaf(relid), LATERAL (
  SELECT 'a' || a.attnum || ':' || a.xmin FROM pg_catalog.pg_attribute a WHERE a.attrelid = relid AND a.attnum > 0
  UNION ALL SELECT 'd' || d.adnum || ':' || d.xmin FROM pg_catalog.pg_attrdef d WHERE d.adrelid = relid
  UNION ALL SELECT 'c' || c.relam || c.relpersistence::text || c.reltoastrelid || ':' || CASE WHEN c.reltoastrelid = 0
    AND current_setting('server_version_num')::int >= 190000 THEN c.relfilenode ELSE 0 END
  FROM pg_catalog.pg_class c WHERE c.oid = relid
) AS known(part)
"""
# columns are read by their names. One that was added since, with a higher number, does no harm
_NAMES = """
SELECT md5(coalesce(string_agg(a.attnum || ':' || a.attname, ' ' ORDER BY a.attnum), ''))
FROM pg_catalog.pg_attribute a WHERE a.attrelid = {}::oid AND a.attnum BETWEEN 1 AND {} AND NOT a.attisdropped
"""


# what is applied to the rows after they were read: the changes since the one snapshot in which all were, or since that
# of each range; or nothing
AppliedLater: TypeAlias = Literal["changes", "changes_of_each", "nothing"]


@dataclass(frozen=True)
class ExportedSnapshot:
    """``snapshot_name`` shows exactly the transactions whose commit record starts before ``lsn``. None: each range is
    read in a snapshot of its own, and the rows are brought to ``lsn`` afterwards."""

    snapshot_name: str | None
    lsn: Lsn


@dataclass(frozen=True)
class SnapshotValue:
    """A query for one value, and its value in the snapshot."""

    query: str
    value: str


@dataclass(frozen=True)
class CtidRange:
    """The blocks ``[first, last)`` of one table or leaf partition; ``last`` None: to the end.

    ``relid``: the leaf's OID. ``stored_bytes``: their share of heap and TOAST table. ``file``: the file with the rows
    that the snapshot shows. ``form``: the part of the catalogue that changes with everything that hides the rows from
    an old snapshot. Both show after the read whether the rows may have been rewritten. ``names``: those of the columns;
    None where ``form`` shows them, too.
    """

    leaf: QualifiedName
    relid: int
    first: int
    last: int | None
    stored_bytes: int
    file: SnapshotValue
    form: SnapshotValue
    names: SnapshotValue | None = None

    @property
    def bounds(self) -> sql.Composable:
        """The condition for its rows."""
        bounds = sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({self.first},0)"))
        if self.last is not None:
            bounds += sql.SQL(" AND ctid < {}::tid").format(sql.Literal(f"({self.last},0)"))
        return bounds

    def rows(self, row_filter: str, where: sql.Composable | None = None) -> sql.Composable:
        """What follows SELECT's columns to get its rows, or those rows of the leaf that meet ``where``."""
        leaf = sql.SQL("ONLY {}").format(sql.Identifier(self.leaf.nspname, self.leaf.relname))
        return rows_from(leaf, self.bounds if where is None else where, row_filter)


def ctid_ranges(
    connection: Connection, relid: int, range_bytes: int = RANGE_BYTES, least: int = 1, *, with_toast: bool = False
) -> tuple[CtidRange, ...]:
    """Divide a table, or each leaf of a partitioned one, into even ranges of at most ``range_bytes`` of heap, or of
    heap and TOAST table: into ``least`` of them, if these are not very short.

    Sizes are the present ones, not those in the snapshot: blocks added since hold no row that it shows. A table dropped
    since has size 0 and one range.
    """
    query = """
        SELECT n.nspname::text, c.relname::text, coalesce(pg_catalog.pg_relation_size(c.oid), 0),
          coalesce(pg_catalog.pg_table_size(c.oid), 0), c.oid::bigint, c.relnatts
        FROM (SELECT relid FROM pg_catalog.pg_partition_tree(%(relid)s::oid::regclass) WHERE isleaf
              UNION SELECT %(relid)s::oid::regclass) leaf(relid)
        JOIN pg_catalog.pg_class c ON c.oid = leaf.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'r' ORDER BY 1, 2"""
    with source_errors("the table could not be divided into ranges"):
        leaves = connection.execute(query, {"relid": relid}).fetchall()
    if least > 1:
        total = sum(size for _, _, size, *_ in leaves)
        range_bytes = min(range_bytes, max(_SHORT_RANGE_BYTES, total // least))
    ranges: list[CtidRange] = []
    for nspname, relname, size, stored, leaf, columns in leaves:
        name = QualifiedName(nspname, relname)
        blocks = max(1, size // _BLOCK_BYTES)
        step = ceil(blocks / ceil((stored if with_toast else size) / range_bytes)) if size else blocks
        starts = list(range(0, blocks, step))
        ends = [*starts[1:], None]
        file, form, names = (_snapshot_value(connection, each, leaf, columns) for each in (_FILE, _FORM, _NAMES))
        share = stored // len(starts)
        bounds = zip(starts, ends, strict=True)
        ranges += [CtidRange(name, leaf, first, last, share, file, form, names) for first, last in bounds]
    return tuple(ranges)


def _snapshot_value(connection: Connection, query: str, relid: int, columns: int) -> SnapshotValue:
    statement = sql.SQL(query).format(sql.Literal(relid), sql.Literal(columns)).as_string(None)
    with source_errors("the catalogue could not be read"):
        return SnapshotValue(statement, connection.execute(statement).fetchall()[0][0])


def range_query(
    facts: RelationFacts,
    ctid_range: CtidRange,
    columns: Sequence[str],
    row_filter: str = "",
    *,
    applied: AppliedLater = "changes",
) -> RangeQuery:
    """The SELECT of one range, with each column in the form that its ``SnapshotColumn`` reads, and the check to run
    afterwards. ``row_filter``: a condition as PostgreSQL prints it; only rows that meet it are read.

    The check fails when the snapshot may no longer have shown all rows. After an ALTER TABLE that rewrites the table,
    or REPACK (CONCURRENTLY), an old snapshot sees no rows; after a TRUNCATE too, but that is also sent through the
    slot. VACUUM FULL, CLUSTER and REPACK move rows, which matters when a table has several ranges. Where nothing is
    ``applied`` afterwards, the check fails after a TRUNCATE too. It also fails if a column may have got another one's
    name since the table was divided: where each range is read in a snapshot of its own, after every change of columns.
    https://www.postgresql.org/docs/current/mvcc-caveats.html
    """
    statement = rows_query(facts, columns, ctid_range.rows(row_filter))
    same = _unchanged(ctid_range.file)
    if applied == "changes_of_each":
        same = sql.SQL("{} AND {}").format(same, _unchanged(ctid_range.form))
    elif applied == "changes" and ctid_range.first == 0 and ctid_range.last is None:
        same = sql.SQL("({} OR {})").format(same, _unchanged(ctid_range.form))
    if applied != "changes_of_each" and ctid_range.names is not None:
        same = sql.SQL("{} AND {}").format(same, _unchanged(ctid_range.names))
    check = sql.SQL("SELECT 1 / ({})::int").format(same)
    label = f"{ctid_range.relid}/{ctid_range.first}"
    return RangeQuery(str(ctid_range.leaf), statement, check.as_string(None), label, ctid_range.stored_bytes)


def rows_from(relation: sql.Composable, where: sql.Composable, row_filter: str) -> sql.Composable:
    """What follows SELECT's columns to get the rows that meet ``where``, and ``row_filter`` if there is one."""
    condition = sql.SQL("{} AND ({})").format(where, sql.SQL(row_filter)) if row_filter else where
    return sql.SQL("FROM {} WHERE {}").format(relation, condition)


def rows_query(facts: RelationFacts, columns: Sequence[str], rows: sql.Composable) -> str:
    """The SELECT of ``rows``, with each column in the form that its ``SnapshotColumn`` reads."""
    by_name = {column.attname: column for column in facts.columns}
    rendered = [_expression(by_name[name]) for name in columns]
    selected = sql.SQL(", ").join(rendered) if rendered else sql.SQL("NULL::text AS nothing")
    return sql.SQL("SELECT {} {}").format(selected, rows).as_string(None)


def _unchanged(known: SnapshotValue) -> sql.Composed:
    return sql.SQL("coalesce(({}) = {}, false)").format(sql.SQL(known.query), sql.Literal(known.value))


def snapshot_column(column: ColumnFacts, mask: TableMask | None = None) -> SnapshotColumn:
    """How this column is read; ``mask``: its table's mask. Raises ValueError for a masked column without one."""
    if column.masked and mask is None:
        raise ValueError(f"column {column.attname} is masked, and no salt is given")
    own = mask if column.masked else None
    return SnapshotColumn(column.attname, column.base_typid, column.lake_type, column.on_unrepresentable, own)


# SQL calls textout for text alone, which is refcursor's, too, and enum_out for no domain over an enum; concat() calls
# them whatever they are declared for. CREATE TYPE refuses an output function that is declared for another type
_REFUSED_BY_SQL = {"pg_catalog.textout", "pg_catalog.enum_out"}


def _expression(column: ColumnFacts) -> sql.Composable:
    name, form = sql.Identifier(column.attname), read_form(column.base_typid, column.lake_type, masked=column.masked)
    if form is ReadForm.NATIVE:
        return name
    if form is ReadForm.BINARY:
        function = sql.Identifier(SEND_FUNCTIONS[column.base_typid])
        return sql.SQL("pg_catalog.{}({}) AS {}").format(function, name, name)
    return sql.SQL("{} AS {}").format(output_text(column), name)


def output_text(column: ColumnFacts) -> sql.Composable:
    """The column's value as PostgreSQL prints it."""
    name = sql.Identifier(column.attname)
    if column.typoutput in _REFUSED_BY_SQL:
        return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN pg_catalog.concat({0}) END").format(name)
    # the output function, like pgoutput (OidOutputFunctionCall); a cast to text would differ for char(n) and others
    return sql.SQL("pg_catalog.textin({}({}))").format(sql.SQL(column.typoutput), name)
