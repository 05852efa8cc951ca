"""Renders a column of binary values as PostgreSQL's text: vectorised for common types, others per distinct value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from spark_jobs.decode.binary.datetime_columns import date_texts, time_texts, timestamp_texts
from spark_jobs.decode.binary.fixed_width import arrow_of, numbers, rows_of_bytes
from spark_jobs.decode.binary.numeric_columns import numeric_texts
from spark_jobs.decode.binary.ragged import Piece, constant, hexadecimal, text_of
from spark_jobs.decode.binary.value_text import value_text
from spark_jobs.decode.text_column import TextColumn
from spark_jobs.schema.wire_type import Family, WireType


def column_text(column: TextColumn, wire_type: WireType) -> pa.Array:
    """The texts as a binary array with the same nulls. Raises ValueError or ArrowInvalid for malformed values."""
    vectorised = _VECTORISED.get(wire_type.family)
    texts = vectorised(column) if vectorised is not None else None
    return texts if texts is not None else _one_by_one(column, wire_type)


def _one_by_one(column: TextColumn, wire_type: WireType) -> pa.Array:
    encoded = column.array.dictionary_encode()
    texts = [value_text(data, wire_type).encode() for data in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.binary()).take(encoded.indices)


def _integers(dtype: str, to: pa.DataType) -> Callable[[TextColumn], pa.Array]:
    def texts(column: TextColumn) -> pa.Array:
        return arrow_of(numbers(column, dtype), to, column).cast(pa.string()).view(pa.binary())

    return texts


def _uuids(column: TextColumn) -> pa.Array:
    digits = hexadecimal(rows_of_bytes(column, 16))
    dash = constant("-", len(digits))
    pieces: list[Piece] = [(digits[:, :8], True)]
    for low, high in ((8, 12), (12, 16), (16, 20), (20, 32)):
        pieces += [(dash, True), (digits[:, low:high], True)]
    return text_of(pieces, column)


def _versioned(column: TextColumn) -> pa.Array:
    if (column.byte(0)[column.valid] != 1).any():
        raise ValueError("version")
    first = column.offsets[:-1][column.valid] - column.offsets[0]
    rest = np.ones(len(column.used), dtype=bool)
    rest[first] = False
    return column.holding(column.used[rest], np.where(column.valid, column.lengths - 1, 0))


_VECTORISED: dict[Family, Callable[[TextColumn], pa.Array | None]] = {
    Family.DATE: date_texts,
    Family.INT2: _integers(">i2", pa.int16()),
    Family.INT4: _integers(">i4", pa.int32()),
    Family.INT8: _integers(">i8", pa.int64()),
    Family.NUMERIC: numeric_texts,
    Family.TEXT: lambda column: column.array,
    Family.TIME: time_texts,
    Family.TIMESTAMP: lambda column: timestamp_texts(column, ""),
    Family.TIMESTAMPTZ: lambda column: timestamp_texts(column, "+00"),
    Family.UINT4: _integers(">u4", pa.uint32()),
    Family.UINT8: _integers(">u8", pa.uint64()),
    Family.UUID: _uuids,
    Family.VERSIONED_TEXT: _versioned,
}
