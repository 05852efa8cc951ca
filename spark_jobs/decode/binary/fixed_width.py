"""Reads columns of values of one width: their bytes viewed as big-endian numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.decode.text_column import TextColumn


def numbers(column: TextColumn, dtype: str) -> np.ndarray:
    """One number per row in native byte order, 0 for nulls. ``dtype``: a big-endian NumPy type.

    Raises ValueError when a value has another width.
    """
    big_endian = np.dtype(dtype)
    if column.null_count == 0:
        if (column.lengths != big_endian.itemsize).any():
            raise ValueError("width")
        return np.asarray(column.used.view(big_endian).astype(big_endian.newbyteorder("=")))
    values = np.zeros(len(column), dtype=big_endian.newbyteorder("="))
    valid = column.valid
    if (column.lengths[valid] != big_endian.itemsize).any():
        raise ValueError("width")
    values[valid] = column.used.view(big_endian)
    return values


def rows_of_bytes(column: TextColumn, width: int) -> np.ndarray:
    """The bytes as a matrix, one row per non-null value. Raises ValueError when a value has another width."""
    if (column.lengths[column.valid] != width).any():
        raise ValueError("width")
    return column.used.reshape(-1, width)


def arrow_of(values: np.ndarray, to: pa.DataType, column: TextColumn, outside: np.ndarray | None = None) -> pa.Array:
    """The values as an Arrow array of type ``to``, null where ``column`` is null and where ``outside``."""
    bitmap = column.array.buffers()[0]
    if outside is not None:
        bitmap = pa.array(column.valid & ~outside).buffers()[1]
    return pa.Array.from_buffers(to, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))])
