"""What a net change makes of a table's rows, a piece of them at a time: memory does not grow with the table. Each mode
has its rule; that of Spark is the MERGE in ``merge_sql`` or ``past_sql``. Keys are equal if PostgreSQL takes them for
one: 0 and -0 are. Of tables without a key, see ``lost_copies``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.close_integers import CloseIntegers, by_key
from spark_jobs.decode.equal_rows import DistinctRows, comparable
from spark_jobs.delta.data_files import slices
from spark_jobs.options.table_mode import Form, Mode, has_versions, holds_changes
from spark_jobs.schema.mode_columns import (
    COMMIT_LSN,
    COMMIT_TIME,
    DELETED_AT,
    VALID_TO,
    VALID_TO_LSN,
    mode_columns,
    own_columns,
    since_snapshot,
)
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import DELETE, OPERATION, UPSERT, NetColumns, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.with_arrow.file_layout import written_columns

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)
Places: TypeAlias = "pa.Array | pa.ChunkedArray"  # among other rows, of each row; null if there is none


@dataclass(frozen=True)
class RowPiece:
    """Some ``rows`` of a table, or a few more or less. ``read`` returns them in parts as large as a row group."""

    rows: int
    read: Callable[[], Iterable[pa.Table]]

    @classmethod
    def parts(cls, rows: pa.Table, most: int) -> list[RowPiece]:
        """Rows that are in memory, in pieces of ``most`` rows at most."""
        return [cls(part.num_rows, partial(iter, (part,))) for part in slices(rows, most)]

    def in_memory(self) -> RowPiece:
        """The same rows, read now."""
        parts = [*self.read()]
        return RowPiece(self.rows, lambda: parts)

    def through(self, change: Callable[[pa.Table], pa.Table]) -> RowPiece:
        """With each part changed when it is read."""
        return RowPiece(self.rows, lambda: map(change, self.read()))


class RowChange(Protocol):
    """A net change whose rows are in memory. A table becomes what is ``kept`` of its rows, and ``added``."""

    @property
    def matched_columns(self) -> tuple[str, ...]:
        """The table's columns by which it ``touches`` rows."""

    @property
    def looks_ahead(self) -> bool:
        """Whether it has to see all rows of the table that it may touch before any are ``kept``."""

    def touches(self, parts: Iterable[pa.Table]) -> bool:
        """Whether one of these rows of the table may be deleted, or get other values. ``parts``: at least the
        ``matched_columns``."""

    def added(self, most: int) -> list[RowPiece] | None:
        """The rows that are written in addition to those that are kept, in pieces of ``most`` rows at most. None if the
        net change deletes a row that the table does not have, or has to be left to Spark. Ask before any rows are
        kept."""

    def kept(self, table_rows: pa.Table) -> pa.Table:
        """What is left of these rows of the table, in its columns as they are written. Asked once for each row, by
        several threads."""

    @property
    def is_done(self) -> bool:
        """Whether all rows to be deleted were among those that it was asked about."""


@dataclass(frozen=True)
class KeyedChange:
    """Of a table with a key, or of one that holds changes. See ``RowChange``."""

    net: NetSource
    looks_ahead = False
    is_done = True

    @cached_property
    def matched_columns(self) -> tuple[str, ...]:
        shape = self._columns.shape
        return tuple(shape.columns[place].name for place in shape.key_indices)

    def touches(self, parts: Iterable[pa.Table]) -> bool:
        return self.net.ended is not None or any(self._places(part).null_count < part.num_rows for part in parts)

    def kept(self, table_rows: pa.Table) -> pa.Table:
        columns, table_rows = self._columns, in_lake_types(self._columns, table_rows)
        return _RULES[columns.mode](table_rows, self._places(table_rows), self._changing, columns, self.net.ended)

    def added(self, most: int) -> list[RowPiece]:
        columns = self._columns
        written = as_written if holds_changes(columns.mode) else _upserts
        return [part.through(partial(written, columns)) for part in RowPiece.parts(self.net.rows_in_memory, most)]

    @property
    def _columns(self) -> NetColumns:
        return self.net.columns

    @cached_property
    def _changing(self) -> pa.Table:
        """The rows of the net change that change one of the table. In mode ``history``, others only begin."""
        return _ending(self.net.rows_in_memory) if has_versions(self._columns.mode) else self.net.rows_in_memory

    @cached_property
    def _wanted(self) -> CloseIntegers | DistinctRows:
        wanted = by_key(_keys(self._changing, self._columns))
        assert wanted is not None, "a net change has one row for each key"
        return wanted

    def _places(self, table_rows: pa.Table) -> pa.Array:
        """For each row of the table the place of the changing row with its key, null if there is none."""
        schema = written_columns(self._columns.shape.columns, self._columns.mode)
        keys = table_rows.select(self.matched_columns)
        keys = keys.cast(pa.schema([schema.field(name) for name in keys.column_names]))
        return self._wanted.places_of(_keys_of_table(keys, self._columns))


def rows_of_snapshot(rows: Rows, form: Form, moment: Moment) -> Rows:
    """The source's rows with the form's columns, which say that the rows exist since the snapshot."""
    for column in own_columns(form):
        values = pa.repeat(pa.scalar(since_snapshot(column, moment), column.arrow), rows.num_rows)
        rows = rows.append_column(column.name, values)
    return rows


def _comparable_key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of a key column that are the same to Arrow if they are to PostgreSQL."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.equal(column, 0.0), pa.scalar(0.0, column.type), column)
    return comparable(column)


def comparable_keys(keys: pa.Table) -> pa.Table:
    return pa.table([_comparable_key(column) for column in keys.columns], keys.column_names)


def _mirrored(
    table_rows: pa.Table, places: Places, _rows: pa.Table, _columns: NetColumns, _: Moment | None
) -> pa.Table:
    return table_rows.filter(pc.is_null(places))


def _soft_deleted(
    table_rows: pa.Table, places: Places, rows: pa.Table, columns: NetColumns, ended: Moment | None
) -> pa.Table:
    at = table_rows.column(DELETED_AT.name)
    others = at if ended is None else pc.coalesce(at, _time(ended))
    deleted = pc.if_else(pc.is_null(places), others, rows.column(DELETED_AT.net).take(places))
    replaced = pc.equal(rows.column(OPERATION).take(places), UPSERT)
    commits = _commits(table_rows, rows, columns, places, pc.is_null(at), ended)
    return _with(table_rows, {DELETED_AT.name: deleted, **commits}).filter(pc.invert(pc.fill_null(replaced, False)))


def _of_history(
    table_rows: pa.Table, places: Places, ending: pa.Table, columns: NetColumns, ended: Moment | None
) -> pa.Table:
    is_open = pc.is_null(table_rows.column(VALID_TO_LSN.name))
    lsn, at = table_rows.column(VALID_TO_LSN.name), table_rows.column(VALID_TO.name)
    if ended is not None:
        lsn = pc.if_else(is_open, pa.scalar(int(ended.lsn), lsn.type), lsn)
        at = pc.if_else(is_open, _time(ended), at)
    ends = pc.and_(is_open, pc.is_valid(places))
    return _with(
        table_rows,
        {
            VALID_TO_LSN.name: pc.if_else(ends, ending.column(VALID_TO_LSN.net).take(places), lsn),
            VALID_TO.name: pc.if_else(ends, ending.column(VALID_TO.net).take(places), at),
            **_commits(table_rows, ending, columns, pc.if_else(is_open, places, None), is_open, ended),
        },
    )


def _commits(
    table_rows: pa.Table,
    rows: pa.Table,
    columns: NetColumns,
    places: Places,
    is_live: pa.ChunkedArray,
    ended: Moment | None,
) -> dict[str, pa.ChunkedArray]:
    """The commit columns of the table's rows: those of the one at ``places`` among the changed ``rows``, or of the
    TRUNCATE or snapshot by which rows ``ended`` that are live and not among these."""
    commits: dict[str, pa.ChunkedArray] = {}
    for i, column in enumerate(columns.shape.columns):
        if not column.of_commit:
            continue
        own, changed = table_rows.column(column.name), rows.column(value(i)).take(places)
        if ended is not None:
            of = {COMMIT_LSN.name: int(ended.lsn), COMMIT_TIME.name: ended.at}
            own = pc.if_else(is_live, pa.scalar(of[column.name], own.type), own)
        commits[column.name] = pc.if_else(pc.is_valid(places), changed, own)
    return commits


def with_snapshot(table_rows: pa.Table, rows: pa.Table, shape: TableShape, mode: Mode, moment: Moment) -> pa.Table:
    """All rows of a table in a mode that keeps the past, after a snapshot at ``moment``. ``rows``: those of the source,
    as ``rows_of_snapshot`` returns them. If rows are kept by their key, a row of the source that the table does not
    have begins then; what only the table has ends then. ``shape``: the table as it is written."""
    columns = NetColumns(shape, mode=mode)
    rows = pa.table([pa.repeat(pa.scalar(UPSERT), rows.num_rows), *rows.columns], [OPERATION, *_names(columns)])
    table_rows = in_lake_types(columns, table_rows)
    if holds_changes(mode):
        return pa.concat_tables([table_rows, as_written(columns, rows)])
    found = by_key(_keys(rows, columns))
    assert found is not None, "a snapshot has one row for each key"
    places = found.places_of(_keys_of_table(table_rows, columns))
    if not has_versions(mode):
        return pa.concat_tables([_soft_deleted(table_rows, places, rows, columns, moment), as_written(columns, rows)])
    stays = pc.and_(pc.is_null(table_rows.column(VALID_TO_LSN.name)), pc.is_valid(places))
    for place, column in enumerate(shape.source_columns):
        own, other = comparable(table_rows.column(column.name)), comparable(rows.column(value(place)).take(places))
        both_null = pc.and_(pc.is_null(own), pc.is_null(other))
        stays = pc.and_(stays, pc.or_(both_null, pc.fill_null(pc.equal(own, other), False)))
    others = table_rows.filter(pc.invert(stays))
    ended = _of_history(others, pa.nulls(others.num_rows, pa.int64()), rows.slice(0, 0), columns, moment)
    is_new = np.ones(rows.num_rows, dtype=bool)
    is_new[places.filter(stays).to_numpy()] = False
    return pa.concat_tables([table_rows.filter(stays), ended, as_written(columns, rows.filter(pa.array(is_new)))])


_RULES = {"mirror": _mirrored, "soft_delete": _soft_deleted, "history": _of_history}


def _upserts(columns: NetColumns, rows: pa.Table) -> pa.Table:
    return as_written(columns, rows.filter(pc.equal(rows.column(OPERATION), UPSERT)))


def _ending(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(rows.column(OPERATION), DELETE))


def _keys(rows: pa.Table, columns: NetColumns) -> pa.Table:
    """Those of a net change, which Arrow compares as PostgreSQL does."""
    return comparable_keys(rows.select([value(place) for place in columns.shape.key_indices]))


def _keys_of_table(table_rows: pa.Table, columns: NetColumns) -> pa.Table:
    """Those of rows of the table, under the same names."""
    keys = {columns.shape.columns[place].name: value(place) for place in columns.shape.key_indices}
    return comparable_keys(table_rows.select([*keys]).rename_columns([*keys.values()]))


def in_lake_types(columns: NetColumns, table_rows: pa.Table) -> pa.Table:
    """Rows of a table in its columns as this process would write them."""
    schema = written_columns(columns.shape.columns, columns.mode)
    return table_rows.select(schema.names).cast(schema)


def as_written(columns: NetColumns, rows: pa.Table) -> pa.Table:
    """``rows`` of a net change in the table's columns."""
    schema = written_columns(columns.shape.columns, columns.mode)
    return rows.select(_names(columns)).rename_columns(schema.names).cast(schema)


def _names(columns: NetColumns) -> list[str]:
    """Of a net change: the values and the columns of the mode, in the order of the table's columns."""
    return [*map(value, range(len(columns.shape.columns))), *(column.net for column in mode_columns(columns.mode))]


def _with(rows: pa.Table, columns: dict[str, pa.ChunkedArray]) -> pa.Table:
    for name, values in columns.items():
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), values)
    return rows


def _time(moment: Moment) -> pa.Scalar:
    return pa.scalar(moment.at, DELETED_AT.arrow)
