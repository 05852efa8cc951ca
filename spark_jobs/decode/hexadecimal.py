r"""Turns columns of hexadecimal text into bytes: ``uuid``, and ``bytea`` (``bytea_output = hex``: ``\x`` and two digits
per byte, in lower case)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.decode.text_column import TextColumn

# by two characters as one number: the byte that they denote, or -1
_BYTES = np.full(1 << 16, -1, dtype=np.int16)
_BYTES[np.frombuffer(bytes(range(256)).hex().encode(), dtype=np.uint16)] = np.arange(256, dtype=np.int16)
_PIECE_PAIRS = 1 << 16  # NumPy makes an index of eight bytes of each
_PREFIX = np.frombuffer(b"\\x", dtype=np.uint16)
_UUID_CHARACTERS, _UUID_BYTES = 36, 16
_DASHES = [8, 13, 18, 23]


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
    return text.holding(_bytes_of(pairs[body]), np.where(valid, (lengths - 2) >> 1, 0))


def uuid_to_bytes(text: TextColumn) -> pa.Array:
    """Sixteen bytes each, with the same nulls. Raises ValueError for anything that ``uuid_out`` does not write."""
    valid = text.valid
    if (text.lengths[valid] != _UUID_CHARACTERS).any():
        raise ValueError("uuid")
    characters = text.used.reshape(-1, _UUID_CHARACTERS)
    if (characters[:, _DASHES] != ord("-")).any():
        raise ValueError("uuid")
    digits = np.ascontiguousarray(np.delete(characters, _DASHES, axis=1)).view(np.uint16).ravel()
    return text.holding(_bytes_of(digits), np.where(valid, _UUID_BYTES, 0))


def _bytes_of(pairs: np.ndarray) -> np.ndarray:
    """The n bytes that n pairs of lower-case hexadecimal digits denote, each as one uint16. Raises ValueError."""
    data = np.empty(len(pairs), dtype=np.uint8)
    for start in range(0, len(pairs), _PIECE_PAIRS):
        piece = slice(start, start + _PIECE_PAIRS)
        values = _BYTES[pairs[piece]]
        if values.min() < 0:
            raise ValueError("hexadecimal digits")
        data[piece] = values
    return data
