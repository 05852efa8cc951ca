r"""Turns a column of ``bytea`` text (``bytea_output = hex``: ``\x`` and two lower-case digits per byte) into bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.decode.text_column import TextColumn

_NO_DIGIT = 255
_DIGITS = np.full(256, _NO_DIGIT, dtype=np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16, dtype=np.uint8)


def hex_to_bytes(text: TextColumn) -> pa.Array:
    r"""A binary array with the same nulls. Raises ValueError for anything but ``\x`` and pairs of digits."""
    lengths = text.lengths
    valid = text.valid
    if (lengths & 1).any() or (lengths[valid] < 2).any():
        raise ValueError("bytea")
    pairs = text.used.reshape(-1, 2)
    prefix = (text.offsets[:-1][valid] - text.offsets[0]) >> 1
    if (pairs[prefix] != np.frombuffer(b"\\x", dtype=np.uint8)).any():
        raise ValueError("bytea")
    body = np.ones(len(pairs), dtype=bool)
    body[prefix] = False
    data = bytes_of_digits(pairs[body])
    offsets = np.zeros(len(text) + 1, dtype=np.int32)
    np.cumsum(np.where(valid, (lengths - 2) >> 1, 0), out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(text), [text.array.buffers()[0], pa.py_buffer(offsets), pa.py_buffer(data.tobytes())]
    )


def bytes_of_digits(pairs: np.ndarray) -> np.ndarray:
    """The bytes that pairs of lower-case hexadecimal digits (n × 2) denote. Raises ValueError."""
    digits = _DIGITS[pairs]
    if (digits == _NO_DIGIT).any():
        raise ValueError("hexadecimal digits")
    return np.asarray(digits[:, 0] << 4 | digits[:, 1])
