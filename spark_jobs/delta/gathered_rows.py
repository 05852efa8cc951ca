"""Batches that are read one after the other as one table, in memory once.

Arrow would hold all batches until it has copied them into one. New memory is what costs most of the time where a window
is read: the first write to it takes longer than to decompress what is written.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

_MOST_BYTES = (1 << 31) - 1  # of one binary array


def gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema, size: int) -> pa.Table:
    """The rows of these batches. Their binary columns without nulls are copied, each into one chunk if its values have
    ``size`` bytes or less."""
    columns = [_Bytes(size) if _is_copied(field) else _Chunks(field.type) for field in schema]
    for rows in batches:
        for column, values in zip(columns, rows.columns, strict=True):
            column.add(values)
    return pa.table([column.chunked() for column in columns], schema)


def _is_copied(field: pa.Field) -> bool:
    return not field.nullable and bool(pa.types.is_binary(field.type))


class _Chunks:
    """One chunk for each batch."""

    def __init__(self, kind: pa.DataType) -> None:
        self._chunks, self._kind = list[pa.Array](), kind

    def add(self, values: pa.Array) -> None:
        self._chunks.append(values)

    def chunked(self) -> pa.ChunkedArray:
        return pa.chunked_array(self._chunks, self._kind)


class _Bytes:
    """Values in one buffer, which has no pages before they are written; in more than one if they are more."""

    def __init__(self, size: int) -> None:
        self._size = min(size, _MOST_BYTES)
        self._chunks = list[pa.Array]()
        self._begin()

    def add(self, values: pa.Array) -> None:
        _, offsets, data = values.buffers()
        if not len(values):
            return
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        added = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
        if self._used + len(added) > len(self._buffer):
            self._end()
            self._begin(len(added))
        self._buffer[self._used : self._used + len(added)] = added
        self._ends.append(bounds[1:] + (self._used - bounds[0]))
        self._used += len(added)

    def chunked(self) -> pa.ChunkedArray:
        self._end()
        return pa.chunked_array(self._chunks, pa.binary())

    def _begin(self, least: int = 0) -> None:
        self._buffer = np.empty(max(self._size, least), np.uint8)
        self._used = 0
        self._ends = [np.zeros(1, np.int32)]

    def _end(self) -> None:
        offsets = np.concatenate(self._ends, dtype=np.int32)
        if len(offsets) > 1:
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._buffer)]
            self._chunks.append(pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers))
