"""Columns of values that are all equally wide: one look at their bytes as big-endian numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.decode.text_column import TextColumn


def numbers(column: TextColumn, dtype: str) -> np.ndarray:
    """One number a row in the machine's byte order, 0 where null. ``dtype``: NumPy's, big-endian.

    Raises ValueError where a value has another width.
    """
    wanted = np.dtype(dtype)
    if column.null_count == 0:
        if (column.lengths != wanted.itemsize).any():
            raise ValueError("width")
        return np.asarray(column.used.view(wanted).astype(wanted.newbyteorder("=")))
    values = np.zeros(len(column), dtype=wanted.newbyteorder("="))
    valid = column.valid
    if (column.lengths[valid] != wanted.itemsize).any():
        raise ValueError("width")
    values[valid] = column.used.view(wanted)
    return values


def rows_of_bytes(column: TextColumn, width: int) -> np.ndarray:
    """The values' bytes as a matrix, one row per value that is not null. Raises ValueError for another width."""
    if (column.lengths[column.valid] != width).any():
        raise ValueError("width")
    return column.used.reshape(-1, width)


def arrow_of(values: np.ndarray, to: pa.DataType, column: TextColumn, outside: np.ndarray | None = None) -> pa.Array:
    """The values without a copy; null where ``column`` is and where ``outside``."""
    bitmap = column.array.buffers()[0]
    if outside is not None:
        bitmap = pa.array(column.valid & ~outside).buffers()[1]
    return pa.Array.from_buffers(to, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))])
