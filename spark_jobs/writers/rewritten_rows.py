"""What a net change makes of the rows of a small table, computed in memory: the table's rows and the net change in, all
rows of the table out. Each mode has its rule; that of Spark is the MERGE in ``merge_sql``, ``past_sql`` or
``copies_merge``.

Rows without a key are equal if PostgreSQL prints them alike, and keys if it takes them for one: 0 and -0 are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.schema.mode_columns import (
    CHANGE,
    COMMIT_LSN,
    COMMIT_TIME,
    DELETED_AT,
    ORDINAL,
    VALID_FROM,
    VALID_FROM_LSN,
    VALID_TO,
    VALID_TO_LSN,
    mode_columns,
)
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import COPIES, DELETE, OPERATION, UPSERT, NetColumns, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.table_mode import Mode, holds_changes
from spark_jobs.writers.file_layout import written_columns
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.past_rows import BEFORE_ALL_CHANGES

_ROW, _PLACE = "row", "place"


def new_rows(net: NetSource) -> pa.Table | None:
    """The rows that the net change adds, whatever the table holds. None if it takes away a row that nobody has."""
    rows, columns = net.in_memory, net.columns
    assert rows is not None
    if holds_changes(columns.mode):
        return _as_written(columns, rows)
    if columns.shape.has_key:
        return _as_written(columns, rows.filter(pc.equal(rows.column(OPERATION), UPSERT)))
    copies = _copies(rows.column(COPIES.name), lenient=net.lenient)
    return None if copies is None else _as_written(columns, rows).take(np.repeat(np.arange(rows.num_rows), copies))


def rewritten(held: pa.Table, net: NetSource) -> pa.Table | None:
    """All rows of a table that has ``held`` before the net change. None if that takes away a row that nobody has."""
    rows, columns = net.in_memory, net.columns
    assert rows is not None
    held = _as_held(columns, held)
    if not columns.shape.has_key and not net.insert_only:
        return _with_copies(held, net)
    if columns.shape.has_key:
        held = _RULES[columns.mode](held, rows, columns, net.ended)
    added = new_rows(net)
    return None if added is None else pa.concat_tables([held, added])


def places_of(wanted: pa.Table, among: pa.Table) -> pa.ChunkedArray | None:
    """For each row of ``wanted`` the place of the one with equal values ``among`` others, null if there is none. Both
    have the same columns, without nulls. None if a wanted row is there twice."""
    names = wanted.column_names
    met = _numbered(wanted, _ROW).join(_numbered(among.cast(wanted.schema), _PLACE), names, join_type="left outer")
    return met.sort_by(_ROW).column(_PLACE) if met.num_rows == wanted.num_rows else None


def rows_of_snapshot(rows: pa.RecordBatch, mode: Mode, moment: Moment) -> pa.RecordBatch:
    """The source's rows with the mode's columns, which say that the rows exist since the snapshot."""
    lsn, at = int(moment.lsn), moment.at
    known = {VALID_FROM_LSN: lsn, VALID_FROM: at, CHANGE: "snapshot", COMMIT_LSN: lsn, ORDINAL: BEFORE_ALL_CHANGES}
    known |= {COMMIT_TIME: at}
    for column in mode_columns(mode):
        values = pa.repeat(pa.scalar(known.get(column), column.arrow), rows.num_rows)
        rows = rows.append_column(column.net, values)
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


def comparable_key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of a key column that are the same to Arrow if they are to PostgreSQL."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.equal(column, 0.0), pa.scalar(0.0, column.type), column)
    return comparable(column)


def _mirrored(held: pa.Table, rows: pa.Table, columns: NetColumns, _: Moment | None) -> pa.Table:
    return held.filter(pc.is_null(_matches(held, rows, columns)))


def _soft_deleted(held: pa.Table, rows: pa.Table, columns: NetColumns, ended: Moment | None) -> pa.Table:
    places = _matches(held, rows, columns)
    at = held.column(DELETED_AT.name)
    others = at if ended is None else pc.coalesce(at, _time(ended))
    deleted = pc.if_else(pc.is_null(places), others, rows.column(DELETED_AT.net).take(places))
    replaced = pc.equal(rows.column(OPERATION).take(places), UPSERT)
    return _with(held, {DELETED_AT.name: deleted}).filter(pc.invert(pc.fill_null(replaced, False)))


def _of_history(held: pa.Table, rows: pa.Table, columns: NetColumns, ended: Moment | None) -> pa.Table:
    ending = rows.filter(pc.equal(rows.column(OPERATION), DELETE))
    places, is_open = _matches(held, ending, columns), pc.is_null(held.column(VALID_TO_LSN.name))
    lsn, at = held.column(VALID_TO_LSN.name), held.column(VALID_TO.name)
    if ended is not None:
        lsn = pc.if_else(is_open, pa.scalar(int(ended.lsn), lsn.type), lsn)
        at = pc.if_else(is_open, _time(ended), at)
    ends = pc.and_(is_open, pc.is_valid(places))
    return _with(
        held,
        {
            VALID_TO_LSN.name: pc.if_else(ends, ending.column(VALID_TO_LSN.net).take(places), lsn),
            VALID_TO.name: pc.if_else(ends, ending.column(VALID_TO.net).take(places), at),
        },
    )


def with_snapshot(held: pa.Table, rows: pa.Table, shape: TableShape, mode: Mode, moment: Moment) -> pa.Table:
    """All rows of a table in a mode that keeps the past, after a snapshot at ``moment``. ``rows``: those of the source,
    as ``rows_of_snapshot`` returns them. If rows are kept by their key, a row of the source that the table does not
    have begins then; what only the table has ends then."""
    columns = NetColumns(shape, mode=mode)
    rows = pa.table([pa.repeat(pa.scalar(UPSERT), rows.num_rows), *rows.columns], [OPERATION, *rows.column_names])
    held = _as_held(columns, held)
    if holds_changes(mode):
        return pa.concat_tables([held, _as_written(columns, rows)])
    if mode == "soft_delete":
        return pa.concat_tables([_soft_deleted(held, rows, columns, moment), _as_written(columns, rows)])
    places = _matches(held, rows, columns)
    stays = pc.and_(pc.is_null(held.column(VALID_TO_LSN.name)), pc.is_valid(places))
    for place, column in enumerate(shape.columns):
        own, other = comparable(held.column(column.name)), comparable(rows.column(value(place)).take(places))
        both_null = pc.and_(pc.is_null(own), pc.is_null(other))
        stays = pc.and_(stays, pc.or_(both_null, pc.fill_null(pc.equal(own, other), False)))
    ended = _of_history(held.filter(pc.invert(stays)), rows.slice(0, 0), columns, moment)
    is_new = np.ones(rows.num_rows, dtype=bool)
    is_new[places.filter(stays).to_numpy()] = False
    return pa.concat_tables([held.filter(stays), ended, _as_written(columns, rows.filter(pa.array(is_new)))])


_RULES = {"mirror": _mirrored, "soft_delete": _soft_deleted, "history": _of_history}


def _with_copies(held: pa.Table, net: NetSource) -> pa.Table | None:
    """Only rows that may be equal to one that goes are counted: to group all would take most of the time."""
    rows, columns = net.in_memory, net.columns
    assert rows is not None
    goes = pc.less(rows.column(COPIES.name), 0)
    going, added = rows.filter(goes), new_rows(replace(net, in_memory=rows.filter(pc.invert(goes))))
    gone = _as_written(columns, going)
    may_go = _may_be_among(held, gone)
    counted = pa.concat_tables([held.filter(may_go), gone])
    once = pa.repeat(pa.scalar(1, COPIES.arrow), counted.num_rows - gone.num_rows)
    copies = pa.chunked_array([once, *going.column(COPIES.name).chunks], COPIES.arrow)
    names = [value(place) for place in range(len(counted.columns))]
    values = pa.table([*map(comparable, counted.columns), copies], [*names, COPIES.name])
    summed = _numbered(values, _ROW).group_by(names).aggregate([(COPIES.name, "sum"), (_ROW, "min")])
    left = _copies(summed.column(f"{COPIES.name}_sum"), lenient=net.lenient)
    if left is None or added is None:
        return None
    stay = counted.take(np.repeat(summed.column(f"{_ROW}_min").to_numpy(), left))
    return pa.concat_tables([held.filter(pc.invert(may_go)), stay, added])


def _may_be_among(rows: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """Whether each value of a row is one that the others have in that column."""
    found = (
        pc.is_in(comparable(rows.column(name)), comparable(others.column(name)).unique()) for name in rows.column_names
    )
    return reduce(pc.and_, found)


def _copies(counted: pa.ChunkedArray, *, lenient: bool) -> np.ndarray | None:
    """How often each row is there. None if one is taken away more often than it was there, unless ``lenient``."""
    copies: np.ndarray = counted.to_numpy()
    if not lenient and (copies < 0).any():
        return None
    never_below: np.ndarray = np.maximum(copies, 0)
    return never_below


def _matches(held: pa.Table, rows: pa.Table, columns: NetColumns) -> pa.ChunkedArray:
    """For each row of the table the place among ``rows`` of the one with its key."""
    keys = [value(place) for place in columns.shape.key_indices]
    names = [columns.shape.columns[place].name for place in columns.shape.key_indices]
    of_table = pa.table([comparable_key(held.column(name)) for name in names], keys)
    places = places_of(of_table, pa.table([comparable_key(rows.column(key)) for key in keys], keys))
    assert places is not None, "a net change has one row for each key"
    return places


def _as_held(columns: NetColumns, held: pa.Table) -> pa.Table:
    schema = written_columns(columns.shape.columns, columns.mode)
    return held.select(schema.names).cast(schema)


def _as_written(columns: NetColumns, rows: pa.Table) -> pa.Table:
    """``rows`` of a net change in the table's columns."""
    schema = written_columns(columns.shape.columns, columns.mode)
    names = [*map(value, range(len(columns.shape.columns))), *(column.net for column in mode_columns(columns.mode))]
    return rows.select(names).rename_columns(schema.names).cast(schema)


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
