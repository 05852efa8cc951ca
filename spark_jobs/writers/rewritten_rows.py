"""What a net change makes of a table's rows, a piece of them at a time: memory does not grow with the table. Each mode
has its rule; that of Spark is the MERGE in ``merge_sql``, ``past_sql`` or ``copies_merge``.

Rows without a key are equal if PostgreSQL prints them alike, and keys if it takes them for one: 0 and -0 are. Commit
columns do not count: of rows that are equal but for these, the oldest go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.delta.data_files import slices
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
from spark_jobs.schema.net_columns import COPIES, DELETE, OPERATION, UPSERT, NetColumns, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.table_mode import Form, Mode, holds_changes
from spark_jobs.writers.file_layout import written_columns
from spark_jobs.writers.net_source import NetSource

Places: TypeAlias = "pa.Array | pa.ChunkedArray"  # among other rows, of each row; null if there is none

_ROW, _PLACE = "row", "place"
_NEVER = -(2**63)  # older than all commits


@dataclass(frozen=True)
class RowPiece:
    """Some ``rows`` of a table, or a few more or less. ``read`` returns them in parts as large as a row group."""

    rows: int
    read: Callable[[], Iterable[pa.Table]]

    @classmethod
    def parts(cls, rows: pa.Table, most: int) -> list[RowPiece]:
        """Rows that are in memory, in pieces of ``most`` rows at most."""
        return [cls(part.num_rows, partial(iter, (part,))) for part in slices(rows, most)]

    def through(self, change: Callable[[pa.Table], pa.Table]) -> RowPiece:
        """With each part changed when it is read."""
        return RowPiece(self.rows, lambda: map(change, self.read()))


@dataclass(frozen=True)
class RowChange:
    """A net change whose rows are in memory. A table becomes what is ``kept`` of its rows, and ``added``."""

    net: NetSource

    @cached_property
    def matched_columns(self) -> tuple[str, ...]:
        """The table's columns by which rows are matched: those of the key, or all of the source's."""
        shape = self._columns.shape
        columns = [shape.columns[place] for place in shape.key_indices] if shape.has_key else shape.source_columns
        return tuple(column.name for column in columns)

    def may_change(self, table_rows: pa.Table) -> pa.ChunkedArray:
        """For each of the table's rows whether it may go, or get other values. ``table_rows``: the
        ``matched_columns`` at least."""
        if self._columns.shape.has_key:
            return pc.is_valid(self._places(table_rows))
        return _may_be_among(self._matched(table_rows), self._wanted)

    def kept(self, table_rows: pa.Table) -> pa.Table:
        """What is left of these rows of the table. Without a key: those that cannot go."""
        columns, table_rows = self._columns, _as_held(self._columns, table_rows)
        if not columns.shape.has_key:
            return table_rows.filter(pc.invert(self.may_change(table_rows)))
        return _RULES[columns.mode](table_rows, self._places(table_rows), self._changing, columns, self.net.ended)

    def added(self, most: int, counted: pa.Table | None = None) -> list[RowPiece] | None:
        """The rows that are written beside those that are kept, in pieces of ``most`` rows at most. ``counted``: of a
        table without a key, all rows that may match one; those that stay are returned too. None if the net change takes
        away a row that nobody has."""
        columns = self._columns
        if columns.shape.has_key or holds_changes(columns.mode):
            written = _as_written if holds_changes(columns.mode) else _upserts
            return [part.through(partial(written, columns)) for part in RowPiece.parts(self._rows, most)]
        nothing = written_columns(columns.shape.columns).empty_table()
        left = self._with_copies(nothing if counted is None else _as_held(columns, counted))
        return None if left is None else RowPiece.parts(left, most)

    @property
    def _columns(self) -> NetColumns:
        return self.net.columns

    @property
    def _rows(self) -> pa.Table:
        assert self.net.in_memory is not None
        return self.net.in_memory

    @cached_property
    def _changing(self) -> pa.Table:
        """The rows of the net change that change one of the table. In mode ``history``, others only begin."""
        columns, rows = self._columns, self._rows
        if not columns.shape.has_key:
            return rows.filter(pc.less(rows.column(COPIES.name), 0))
        return _ending(rows) if columns.mode == "history" else rows

    @cached_property
    def _wanted(self) -> pa.Table:
        """By what these rows are matched."""
        if self._columns.shape.has_key:
            return _keys(self._changing, self._columns)
        return self._matched(_as_written(self._columns, self._changing))

    @cached_property
    def _in_order(self) -> tuple[np.ndarray, np.ndarray] | None:
        """If the key is one number: all keys in ascending order, and their places."""
        if self._wanted.num_columns > 1 or not pa.types.is_integer(self._wanted.column(0).type):
            return None
        keys = self._wanted.column(0).to_numpy()
        places = np.argsort(keys)
        return keys[places], places

    def _places(self, table_rows: pa.Table) -> Places:
        """For each row of the table the place of the changing row with its key, null if there is none."""
        keys, in_order = self._matched(table_rows), self._in_order
        if in_order is not None and len(in_order[0]) and not keys.column(0).null_count:
            # in a tenth of the time of a join
            ascending, places = in_order
            values = keys.column(0).to_numpy()
            at = np.minimum(np.searchsorted(ascending, values), len(places) - 1)
            return pa.array(places[at], mask=ascending[at] != values)
        # to join a part of the table with all keys would take most of the time
        near = pc.indices_nonzero(_may_be_among(self._wanted, keys))
        among = places_of(keys, self._wanted.take(near))
        assert among is not None, "a net change has one row for each key"
        return near.take(among)

    def _matched(self, table_rows: pa.Table) -> pa.Table:
        schema = written_columns(self._columns.shape.columns, self._columns.mode)
        table_rows = table_rows.select(self.matched_columns)
        table_rows = table_rows.cast(pa.schema([schema.field(name) for name in table_rows.column_names]))
        if self._columns.shape.has_key:
            return _keys_held(table_rows, self._columns)
        return pa.table([comparable(column) for column in table_rows.columns], table_rows.column_names)

    def _with_copies(self, table_rows: pa.Table) -> pa.Table | None:
        """Only rows that may be equal to one that goes are counted: to group all would take most of the time. No added
        row is older than one that was there. So it makes no difference at which change of the range a row goes."""
        rows, columns = self._rows, self._columns
        copies, going = rows.column(COPIES.name), self._changing
        added = np.repeat(np.arange(rows.num_rows), np.maximum(copies.to_numpy(), 0))
        whole = pa.concat_tables([table_rows, _as_written(columns, rows).take(added)])
        if not going.num_rows:
            return whole
        may_go, source = self.may_change(whole), self.matched_columns
        counted, deletes = _oldest_first(whole.filter(may_go), columns), _as_written(columns, going).select(source)
        places = _places_left(counted.select(source), deletes, going.column(COPIES.name), lenient=self.net.lenient)
        if places is None:
            return None
        return pa.concat_tables([whole.filter(pc.invert(may_go)), counted.take(places)])


def places_of(keys: pa.Table, among: pa.Table) -> pa.ChunkedArray | None:
    """For each row of ``keys`` the place of the one with equal values ``among`` others, null if there is none. Both
    have the same columns, without nulls. None if one of ``keys`` is there twice."""
    names = keys.column_names
    met = _numbered(keys, _ROW).join(_numbered(among.cast(keys.schema), _PLACE), names, join_type="left outer")
    return met.sort_by(_ROW).column(_PLACE) if met.num_rows == keys.num_rows else None


def rows_of_snapshot(rows: pa.RecordBatch, form: Form, moment: Moment) -> pa.RecordBatch:
    """The source's rows with the form's columns, which say that the rows exist since the snapshot."""
    for column in own_columns(form):
        values = pa.repeat(pa.scalar(since_snapshot(column, moment), column.arrow), rows.num_rows)
        rows = rows.append_column(column.name, values)
    return rows


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values that are the same to Arrow if PostgreSQL prints them alike. Of floats: their bits, those of one NaN. Of
    arrays: a text."""
    if pa.types.is_list(column.type):
        return pa.chunked_array([pa.array(map(_text, column.to_pylist()), pa.string())])
    if not pa.types.is_floating(column.type):
        return column
    bits = pa.int32() if column.type == pa.float32() else pa.int64()
    of_one_nan = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    return pa.chunked_array([chunk.view(bits) for chunk in of_one_nan.chunks], bits)


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
    table_rows = _as_held(columns, table_rows)
    if holds_changes(mode):
        return pa.concat_tables([table_rows, _as_written(columns, rows)])
    places = places_of(_keys_held(table_rows, columns), _keys(rows, columns))
    assert places is not None, "a snapshot has one row for each key"
    if mode == "soft_delete":
        return pa.concat_tables([_soft_deleted(table_rows, places, rows, columns, moment), _as_written(columns, rows)])
    stays = pc.and_(pc.is_null(table_rows.column(VALID_TO_LSN.name)), pc.is_valid(places))
    for place, column in enumerate(shape.source_columns):
        own, other = comparable(table_rows.column(column.name)), comparable(rows.column(value(place)).take(places))
        both_null = pc.and_(pc.is_null(own), pc.is_null(other))
        stays = pc.and_(stays, pc.or_(both_null, pc.fill_null(pc.equal(own, other), False)))
    others = table_rows.filter(pc.invert(stays))
    ended = _of_history(others, pa.nulls(others.num_rows, pa.int64()), rows.slice(0, 0), columns, moment)
    is_new = np.ones(rows.num_rows, dtype=bool)
    is_new[places.filter(stays).to_numpy()] = False
    return pa.concat_tables([table_rows.filter(stays), ended, _as_written(columns, rows.filter(pa.array(is_new)))])


_RULES = {"mirror": _mirrored, "soft_delete": _soft_deleted, "history": _of_history}


def _upserts(columns: NetColumns, rows: pa.Table) -> pa.Table:
    return _as_written(columns, rows.filter(pc.equal(rows.column(OPERATION), UPSERT)))


def _oldest_first(rows: pa.Table, columns: NetColumns) -> pa.Table:
    of_commit = [rows.column(column.name).cast(pa.int64()) for column in columns.shape.columns if column.of_commit]
    if not of_commit:
        return rows
    ages = [pc.fill_null(column, _NEVER).to_numpy() for column in reversed(of_commit)]
    return rows.take(np.lexsort(ages))


def _places_left(rows: pa.Table, deletes: pa.Table, copies: pa.ChunkedArray, *, lenient: bool) -> np.ndarray | None:
    """The places of those ``rows`` that are left if, of those equal to a row of ``deletes``, the first ones go.
    ``copies``: how many of each, less than 0. None if there are not so many, unless ``lenient``."""
    every = pa.concat_tables([deletes, rows])
    names = [value(place) for place in range(every.num_columns)]
    once = pa.repeat(pa.scalar(1, COPIES.arrow), rows.num_rows)
    counts = pa.chunked_array([*copies.chunks, once], COPIES.arrow)
    numbered = _numbered(pa.table([*map(comparable, every.columns), counts], [*names, COPIES.name]), _ROW)
    # without threads, those that go come first
    equal = numbered.group_by(names, use_threads=False).aggregate([(_ROW, "list"), (COPIES.name, "sum")])
    sums, lists = equal.column(f"{COPIES.name}_sum").to_numpy(), equal.column(f"{_ROW}_list")
    if not lenient and (sums < 0).any():
        return None
    order, added = pc.list_flatten(lists).to_numpy(), counts.to_numpy()
    before = np.repeat(np.cumsum(sums) - sums, pc.list_value_length(lists).to_numpy())
    is_left = (added[order] > 0) & (np.cumsum(added[order]) > before)
    places: np.ndarray = order[is_left] - deletes.num_rows
    return places


def _may_be_among(rows: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """Whether each value of a row is one that the others have in that column. Both have comparable values."""
    return reduce(
        pc.and_, (pc.is_in(own, other.unique()) for own, other in zip(rows.columns, others.columns, strict=True))
    )


def _ending(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(rows.column(OPERATION), DELETE))


def _keys(rows: pa.Table, columns: NetColumns) -> pa.Table:
    """Those of a net change, which Arrow compares as PostgreSQL does."""
    return comparable_keys(rows.select([value(place) for place in columns.shape.key_indices]))


def _keys_held(table_rows: pa.Table, columns: NetColumns) -> pa.Table:
    """Those of rows of the table, under the same names."""
    keys = {columns.shape.columns[place].name: value(place) for place in columns.shape.key_indices}
    return comparable_keys(table_rows.select([*keys]).rename_columns([*keys.values()]))


def _as_held(columns: NetColumns, table_rows: pa.Table) -> pa.Table:
    schema = written_columns(columns.shape.columns, columns.mode)
    return table_rows.select(schema.names).cast(schema)


def _as_written(columns: NetColumns, rows: pa.Table) -> pa.Table:
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


def _text(array: object) -> str | None:
    return None if array is None else repr(array)


def _time(moment: Moment) -> pa.Scalar:
    return pa.scalar(moment.at, DELETED_AT.arrow)


def _numbered(rows: pa.Table, name: str) -> pa.Table:
    return rows.append_column(name, pa.array(np.arange(rows.num_rows)))
