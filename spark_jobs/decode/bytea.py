r"""Turns a column of ``bytea`` text (``bytea_output = hex``: ``\x`` and two lower-case digits per byte) into bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.decode.text_column import TextColumn

# by two characters as one number: the byte that they denote, or -1
_BYTES = np.full(1 << 16, -1, dtype=np.int16)
_BYTES[np.frombuffer(bytes(range(256)).hex().encode(), dtype=np.uint16)] = np.arange(256, dtype=np.int16)
_PIECE_PAIRS = 1 << 16  # NumPy makes an index of eight bytes of each
_PREFIX = np.frombuffer(b"\\x", dtype=np.uint16)


def hex_to_bytes(text: TextColumn) -> pa.Array:
    r"""A binary array with the same nulls. Raises ValueError for anything but ``\x`` and pairs of digits."""
    lengths = text.lengths
    valid = text.valid
    if (lengths & 1).any() or (lengths[valid] < 2).any():
        raise ValueError("bytea")
    pairs = text.used.view(np.uint16)
    prefix = (text.offsets[:-1][valid] - text.offsets[0]) >> 1
    if (pairs[prefix] != _PREFIX).any():
        raise ValueError("bytea")
    body = np.ones(len(pairs), dtype=bool)
    body[prefix] = False
    data = bytes_of_digits(pairs[body])
    offsets = np.zeros(len(text) + 1, dtype=np.int32)
    np.cumsum(np.where(valid, (lengths - 2) >> 1, 0), out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(text), [text.array.buffers()[0], pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def bytes_of_digits(pairs: np.ndarray) -> np.ndarray:
    """The n bytes that n pairs of lower-case hexadecimal digits denote, each as one uint16. Raises ValueError."""
    data = np.empty(len(pairs), dtype=np.uint8)
    for start in range(0, len(pairs), _PIECE_PAIRS):
        piece = slice(start, start + _PIECE_PAIRS)
        values = _BYTES[pairs[piece]]
        if values.min() < 0:
            raise ValueError("hexadecimal digits")
        data[piece] = values
    return data
