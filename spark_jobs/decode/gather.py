"""Copies values from a message buffer, given (start, length) per row, into one Arrow binary column: one copy, in C++.

The trick: interleave the starts and ends of ascending, disjoint spans, and you have the offsets of a binary array whose
even slots are the values and whose odd slots are what lies between them. ``take`` of the even slots is the one copy.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_PIECE = 65_536  # rows copied at a time: the bytes stay in the processor's cache, and offsets rarely need 64 bits


def gather(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, valid: np.ndarray) -> pa.ChunkedArray:
    """A binary column of the spans, null where not ``valid``. Spans may come in any order and may repeat.

    The caller must have checked that they lie inside ``data``.
    """
    pieces = [
        _gather_piece(data, starts[low : low + _PIECE], lengths[low : low + _PIECE], valid[low : low + _PIECE])
        for low in range(0, len(starts), _PIECE)
    ]
    return pa.chunked_array(pieces, type=pa.binary())


def _gather_piece(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, valid: np.ndarray) -> pa.Array:
    if valid.all():
        ends = starts + lengths
        if (starts[1:] < ends[:-1]).any():
            return _gather_unordered(data, starts, lengths)
        return _take_ascending(data, starts, ends)
    if not valid.any():
        return pa.nulls(len(starts), pa.binary())
    # a null is an empty span at the end of the value before it, so that offsets stay ascending
    reached = np.maximum.accumulate(np.where(valid, starts + lengths, starts[np.argmax(valid)]))
    begins, ends = np.where(valid, starts, reached), reached
    if (begins[1:] < ends[:-1]).any() or (begins > ends).any():
        values = _gather_unordered(data, np.where(valid, starts, 0), np.where(valid, lengths, 0))
    else:
        values = _take_ascending(data, begins, ends)
    return _with_nulls(values, valid)


def _take_ascending(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    base, rows = int(starts[0]), len(starts)
    span = int(ends[-1]) - base
    wide = span >= 1 << 31
    offsets = np.empty(2 * rows, dtype=np.int64 if wide else np.int32)
    offsets[0::2] = starts - base
    offsets[1::2] = ends - base
    spans = pa.Array.from_buffers(
        pa.large_binary() if wide else pa.binary(),
        2 * rows - 1,
        [None, pa.py_buffer(offsets), pa.py_buffer(data[base : base + span])],
    )
    values = spans.take(pa.array(np.arange(0, 2 * rows - 1, 2, dtype=np.int64)))
    return values.cast(pa.binary()) if wide else values


def _gather_unordered(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """For spans out of order: gather the distinct ones in ascending order, then distribute them to the rows."""
    distinct, which = np.unique(np.stack([starts, starts + lengths]), axis=1, return_inverse=True)
    filled = distinct[1] > distinct[0]  # an empty span may lie inside another's bytes
    # overlapping spans cannot share one offsets array: gather each run of disjoint spans on its own
    values = [_take_ascending(data, begin, end) for begin, end in _disjoint(distinct[:, filled])]
    array = pa.concat_arrays([*values, pa.array([b""], pa.binary())])
    place = np.where(filled, np.cumsum(filled) - 1, len(array) - 1)
    return array.take(pa.array(place[which.reshape(-1)]))


def _disjoint(spans: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ascending spans, split into runs in which no span overlaps the next; well-formed messages give one run."""
    if not spans.shape[1]:
        return []
    cuts = np.flatnonzero(spans[0, 1:] < spans[1, :-1]) + 1
    return [(run[0], run[1]) for run in np.split(spans, cuts, axis=1)]


def _with_nulls(values: pa.Array, valid: np.ndarray) -> pa.Array:
    bitmap = pa.array(valid).buffers()[1]
    _, offsets, data = values.buffers()
    return pa.Array.from_buffers(values.type, len(values), [bitmap, offsets, data], offset=values.offset)
