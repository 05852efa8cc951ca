"""Casts a column of binary values to its lake type, with the result that ``values.cast_text`` has for their text.

Common types are cast straight from the bytes, all others by way of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from spark_jobs.decode.binary.column_text import column_text
from spark_jobs.decode.binary.datetime_columns import dates, timestamps
from spark_jobs.decode.binary.fixed_width import arrow_of, numbers
from spark_jobs.decode.binary.numeric_columns import decimals
from spark_jobs.decode.text_column import TextColumn
from spark_jobs.decode.values import (
    NOT_IN_DECIMAL,
    OUT_OF_RANGE,
    Fitted,
    OnUnrepresentable,
    Parsed,
    parse_text,
    settled,
)
from spark_jobs.errors import DecodeError, new_snapshot
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.wire_type import Family, WireType


def cast_binary(
    column: pa.Array,
    wire_type: WireType,
    lake_type: LakeType,
    *,
    name: str,
    table: str,
    on_unrepresentable: OnUnrepresentable = "error",
) -> Fitted:
    """Cast ``column``, which holds what the type's send function writes. Result and errors as ``values.cast_text``."""
    with _as_decode_error(wire_type, name=name, table=table):
        values = TextColumn.of(column)
        direct = None if lake_type.chosen else _DIRECT.get((lake_type.kind, wire_type.family))
        parsed = direct(values, lake_type) if direct is not None else None
        if parsed is None:
            parsed = parse_text(TextColumn.of(column_text(values, wire_type)), lake_type)

        def text_of(rows: np.ndarray) -> TextColumn:
            return TextColumn.of(column_text(values.where(rows), wire_type))

        return settled(parsed, text_of, lake_type, name=name, table=table, on_unrepresentable=on_unrepresentable)


def text_of_binary(column: pa.Array, wire_type: WireType, *, name: str, table: str) -> pa.Array:
    """PostgreSQL's text of these values, as a binary array: with it, keys in binary and in text compare as equal.

    Raises DecodeError that names ``table`` and ``name``.
    """
    with _as_decode_error(wire_type, name=name, table=table):
        return column_text(TextColumn.of(column), wire_type)


@contextmanager
def _as_decode_error(wire_type: WireType, *, name: str, table: str) -> Iterator[None]:
    """Raise errors about malformed bytes as DecodeError that names the column and its type, never the value."""
    try:
        yield
    except ValueError:  # includes ArrowInvalid, whose message quotes the value
        raise DecodeError(
            f"{table} column {name}: not the binary form of {wire_type.name} that this version knows",
            hint=f"set source.binary: false and {new_snapshot(table)}",
        ) from None


def _booleans(column: TextColumn, _: LakeType) -> Parsed:
    values = numbers(column, ">u1")
    if (values > 1).any():
        raise ValueError("bool")
    packed = np.packbits(values.astype(bool), bitorder="little")
    return Parsed(pa.Array.from_buffers(pa.bool_(), len(column), [column.array.buffers()[0], pa.py_buffer(packed)]))


def _numbers(dtype: str) -> Callable[[TextColumn, LakeType], Parsed]:
    def parsed(column: TextColumn, lake_type: LakeType) -> Parsed:
        values = numbers(column, dtype)
        if values.dtype == np.uint32:
            values = values.astype(np.int64)
        elif values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan  # the same bits for every NaN
        return Parsed(arrow_of(values, lake_type.arrow, column))

    return parsed


def _decimals(column: TextColumn, lake_type: LakeType) -> Parsed | None:
    parsed = decimals(column, lake_type.arrow)
    if parsed is None:
        return None
    values, special = parsed
    return Parsed(values, special, NOT_IN_DECIMAL) if special.any() else Parsed(values)


def _dates(column: TextColumn, _: LakeType) -> Parsed:
    return Parsed(*dates(column), OUT_OF_RANGE)


def _timestamps(column: TextColumn, lake_type: LakeType) -> Parsed:
    return Parsed(*timestamps(column, lake_type.arrow), OUT_OF_RANGE)


_DIRECT: dict[tuple[LakeKind, Family], Callable[[TextColumn, LakeType], Parsed | None]] = {
    (LakeKind.BOOLEAN, Family.BOOL): _booleans,
    (LakeKind.SMALLINT, Family.INT2): _numbers(">i2"),
    (LakeKind.INT, Family.INT4): _numbers(">i4"),
    (LakeKind.BIGINT, Family.INT8): _numbers(">i8"),
    (LakeKind.BIGINT, Family.UINT4): _numbers(">u4"),
    (LakeKind.FLOAT, Family.FLOAT4): _numbers(">f4"),
    (LakeKind.DOUBLE, Family.FLOAT8): _numbers(">f8"),
    (LakeKind.DECIMAL, Family.NUMERIC): _decimals,
    (LakeKind.DATE, Family.DATE): _dates,
    (LakeKind.TIMESTAMP_NTZ, Family.TIMESTAMP): _timestamps,
    (LakeKind.TIMESTAMP, Family.TIMESTAMPTZ): _timestamps,
    (LakeKind.BINARY, Family.BYTEA): lambda column, _: Parsed(column.array),
}
