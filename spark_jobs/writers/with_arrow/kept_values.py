"""Values that a change did not send, as they are stored out of line and did not change: taken from the table's rows.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html#PROTOCOL-LOGICALREP-MESSAGE-FORMATS-TUPLEDATA
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.close_integers import by_key
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.schema.mode_columns import live_rows
from spark_jobs.schema.net_columns import NetColumns, old_key, unchanged, value
from spark_jobs.writers.merge_sql import in_range
from spark_jobs.writers.net_source import NetSource, key_range_of
from spark_jobs.writers.with_arrow.opened_table import OpenedTable, file_bytes
from spark_jobs.writers.with_arrow.rewritten_rows import Places, comparable_keys
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table


def with_kept_values(opened: OpenedTable, net: NetSource, limits: WriteLimits) -> NetSource | None:
    """The net change, whose rows the driver holds, with the opened version's values in place of those that were not
    sent. The table has a key.

    None if such a row is not in the table, or if more than a small table would have to be read for it.
    """
    rows, columns = net.rows_in_memory, net.columns
    if pc.any(keeping := lacking(columns, rows)).as_py():
        lookup = _found(opened, columns, rows, limits)
        if lookup is None:
            return None
        table_rows, places = lookup
        if pc.any(pc.and_(keeping, pc.is_null(places))).as_py():
            return None
        rows = filled(
            columns, rows, {i: table_rows.column(columns.shape.columns[i].name) for i in columns.unchanged}, places
        )
    extra = [*map(unchanged, columns.unchanged), *map(old_key, columns.old_keys)]
    return replace(net, columns=replace(columns, unchanged=(), old_keys=()), in_memory=rows.drop_columns(extra))


def lacking(columns: NetColumns, rows: pa.Table) -> pa.ChunkedArray:
    """For each of ``rows`` whether a value of it was not sent."""
    nothing = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    return reduce(pc.or_, (_flag(rows, place) for place in columns.unchanged), nothing)


def filled(columns: NetColumns, rows: pa.Table, values: Mapping[int, pa.ChunkedArray], places: Places) -> pa.Table:
    """``rows`` with the values that were not sent: those of the rows at ``places`` among those that have ``values``,
    by the index of the column."""
    for place in columns.unchanged:
        name = value(place)
        own = rows.column(name)
        kept = pc.if_else(_flag(rows, place), values[place].take(places).cast(own.type), own)
        rows = rows.set_column(rows.column_names.index(name), name, kept)
    return rows


def _flag(rows: pa.Table, place: int) -> pa.ChunkedArray:
    return pc.fill_null(rows.column(unchanged(place)), False)


def _found(
    opened: OpenedTable, columns: NetColumns, rows: pa.Table, limits: WriteLimits
) -> tuple[pa.Table, pa.Array] | None:
    """Rows of the table; and for each of ``rows`` the place among them of the one with its key, or with the key that it
    had before: null where there is none."""
    shape = columns.shape
    keys = [value(place) for place in shape.key_indices]
    keys_to_find = pa.table([key_before(columns, rows, place) for place in shape.key_indices], keys)
    key_range = key_range_of(keys_to_find, shape)
    if not limits.is_little_to_read(file_bytes(opened.files_in_range(shape, key_range)), rows.num_rows, rows.nbytes):
        return None
    within = () if key_range is None else (in_range(shape, key_range),)
    table_rows = rows_of_table(opened.table, " AND ".join((live_rows(columns.mode) or "true", *within)))
    known = table_rows.select([shape.columns[place].name for place in shape.key_indices]).rename_columns(keys)
    found = by_key(comparable_keys(known.cast(keys_to_find.schema)))
    return None if found is None else (table_rows, found.places_of(comparable_keys(keys_to_find)))


def key_before(columns: NetColumns, rows: pa.Table, place: int) -> pa.ChunkedArray:
    """A column of the key that the row had before the changes."""
    own = rows.column(value(place))
    return pc.coalesce(rows.column(old_key(place)), own) if place in columns.old_keys else own
