"""Replaces values with hashes: in a column of PostgreSQL's text, and inside the messages of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.options.table_mask import HASH_BYTES, TableMask

_LENGTH_BYTES = 4
_LENGTH = HASH_BYTES.to_bytes(_LENGTH_BYTES, "big")


def masked_text(column: pa.Array, mask: TableMask) -> pa.Array:
    """The hashes of a string or binary column, as strings of hexadecimal digits with the same nulls."""
    values = column.cast(pa.large_binary()).to_pylist()
    return pa.array([None if value is None else mask.hashed(value).decode() for value in values], pa.string())


def with_hashes(messages: pa.Array, starts: np.ndarray, lengths: np.ndarray, mask: TableMask) -> pa.Array:
    """The messages with hashes in place of the values at ``starts`` in the array's buffer.

    ``messages``: binary, without nulls. The four bytes before each value are its length, and become that of its hash.
    The values must be ascending, disjoint and inside their messages.
    """
    if not len(starts):
        return messages
    _, offsets, data = messages.buffers()
    bounds = np.frombuffer(offsets, np.int32)[messages.offset : messages.offset + len(messages) + 1].astype(np.int64)
    # the buffer as pieces that alternate: what stays, a length with its value, what stays, …
    edges = np.empty(2 * len(starts) + 2, np.int32)
    edges[0], edges[1:-1:2], edges[2:-1:2], edges[-1] = bounds[0], starts - _LENGTH_BYTES, starts + lengths, bounds[-1]
    pieces = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), data])
    values = pieces.take(pa.array(np.arange(1, len(pieces), 2)))
    # value by value: a hash is one OpenSSL call of about a microsecond, and there is no call for several
    hashes = pa.array([_LENGTH + mask.hashed(value[_LENGTH_BYTES:]) for value in values.to_pylist()], pa.binary())
    by_turns = np.arange(len(pieces))
    by_turns[1::2] = len(pieces) + np.arange(len(hashes))
    _, _, rewritten = pa.concat_arrays([pieces, hashes]).take(pa.array(by_turns)).buffers()
    # each message moves by as much as the values before it have grown; side="right" because an empty value may end
    # where the next message begins
    grown = np.concatenate([[0], np.cumsum(HASH_BYTES - lengths)])
    moved = bounds - bounds[0] + grown[np.searchsorted(starts, bounds, side="right")]
    return pa.Array.from_buffers(pa.binary(), len(messages), [None, pa.py_buffer(moved.astype(np.int32)), rewritten])
