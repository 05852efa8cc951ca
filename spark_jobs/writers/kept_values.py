"""Values that a change did not send, as they are stored out of line and did not change: taken from the table's rows.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html#PROTOCOL-LOGICALREP-MESSAGE-FORMATS-TUPLEDATA
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.schema.net_columns import NetColumns, old_key, unchanged, value
from spark_jobs.write_limits import WriteLimits
from spark_jobs.writers.held_rows import held_rows
from spark_jobs.writers.merge_sql import in_range
from spark_jobs.writers.net_source import NetSource, key_range_of
from spark_jobs.writers.opened_table import OpenedTable, file_bytes

_ROW, _HELD = "row", "held"


def with_kept_values(opened: OpenedTable, net: NetSource, limits: WriteLimits) -> NetSource | None:
    """The net change, whose rows the driver holds, with the opened version's values in place of those that were not
    sent. The table has a key.

    None if such a row is not in the table, or if more than a small table would have to be read for it.
    """
    rows, columns = net.in_memory, net.columns
    assert rows is not None
    flags = [pc.fill_null(rows.column(unchanged(place)), False) for place in columns.unchanged]
    if flags and pc.any(keeping := reduce(pc.or_, flags)).as_py():
        found = _found(opened, columns, rows, limits)
        if found is None:
            return None
        held, places = found
        if pc.any(pc.and_(keeping, pc.is_null(places))).as_py():
            return None
        for place, flag in zip(columns.unchanged, flags, strict=True):
            name, kept = value(place), held.column(columns.shape.columns[place].name)
            own = rows.column(name)
            filled = pc.if_else(flag, kept.take(places).cast(own.type), own)
            rows = rows.set_column(rows.column_names.index(name), name, filled)
    extra = [*map(unchanged, columns.unchanged), *map(old_key, columns.old_keys)]
    return replace(net, columns=replace(columns, unchanged=(), old_keys=()), in_memory=rows.drop_columns(extra))


def _found(
    opened: OpenedTable, columns: NetColumns, rows: pa.Table, limits: WriteLimits
) -> tuple[pa.Table, pa.ChunkedArray] | None:
    """Rows of the table; and for each of ``rows`` the place among them of the one with its key, or with the key that it
    had before: null where there is none."""
    shape = columns.shape
    keys = [value(place) for place in shape.key_indices]
    wanted = pa.table([_key_before(columns, rows, place) for place in shape.key_indices], keys)
    key_range = key_range_of(wanted, shape)
    if not limits.is_little_to_read(file_bytes(opened.files_in_range(shape, key_range)), rows.num_rows, rows.nbytes):
        return None
    held = held_rows(opened.table, "true" if key_range is None else in_range(shape, key_range))
    known = held.select([shape.columns[place].name for place in shape.key_indices]).rename_columns(keys)
    met = _numbered(wanted, _ROW).join(_numbered(known.cast(wanted.schema), _HELD), keys, join_type="left outer")
    if met.num_rows != rows.num_rows:  # somebody has put a row there twice
        return None
    return held, met.sort_by(_ROW).column(_HELD)


def _key_before(columns: NetColumns, rows: pa.Table, place: int) -> pa.ChunkedArray:
    own = rows.column(value(place))
    return pc.coalesce(rows.column(old_key(place)), own) if place in columns.old_keys else own


def _numbered(rows: pa.Table, name: str) -> pa.Table:
    return rows.append_column(name, pa.array(range(rows.num_rows), pa.int64()))
