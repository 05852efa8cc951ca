"""Reads TupleData, the values of one row in Insert, Update and Delete, as ``logicalrep_read_tuple`` does."""

from __future__ import annotations

from spark_jobs.logicalrep.cursor import Cursor
from spark_jobs.logicalrep.errors import UnknownColumnError
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, BinaryValue, ColumnValue, TupleData


def read_tuple_data(cursor: Cursor) -> TupleData:
    """Read the number of columns and as many values. The caller compares the number with the relation's."""
    return tuple(_column(cursor) for _ in range(cursor.uint16("number of columns")))


def _column(cursor: Cursor) -> ColumnValue:
    kind = cursor.char("column kind")
    if kind == "t":
        return cursor.counted("column value")
    if kind == "n":
        return None
    if kind == "u":
        return UNCHANGED_TOAST
    if kind == "b":
        return BinaryValue(cursor.counted("column value"))
    raise UnknownColumnError(f"column kind {kind!r}, expected one of n, u, t, b")
