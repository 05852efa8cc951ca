"""Turns a column of ``uuid`` text into sixteen bytes each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.decode.bytea import bytes_of_digits
from spark_jobs.decode.text_column import TextColumn

_CHARACTERS, _BYTES = 36, 16
_DASHES = [8, 13, 18, 23]


def uuid_to_bytes(text: TextColumn) -> pa.Array:
    """A binary array with the same nulls. Raises ValueError for anything that ``uuid_out`` does not write."""
    valid = text.valid
    if (text.lengths[valid] != _CHARACTERS).any():
        raise ValueError("uuid")
    characters = text.used.reshape(-1, _CHARACTERS)
    if (characters[:, _DASHES] != ord("-")).any():
        raise ValueError("uuid")
    data = bytes_of_digits(np.ascontiguousarray(np.delete(characters, _DASHES, axis=1)).view(np.uint16).ravel())
    offsets = np.zeros(len(text) + 1, dtype=np.int32)
    np.cumsum(np.where(valid, _BYTES, 0), out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(text), [text.array.buffers()[0], pa.py_buffer(offsets), pa.py_buffer(data.tobytes())]
    )
