"""One column of PostgreSQL's output, mostly text, with its bytes and offsets accessible for vectorised checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class TextColumn:
    """``array`` is binary, starts at offset 0, and its nulls take no bytes. The n + 1 ``offsets`` index ``data``."""

    array: pa.Array
    offsets: np.ndarray
    data: np.ndarray

    @classmethod
    def of(cls, column: pa.Array) -> TextColumn:
        """From a string or binary array, large ones included. Raises ArrowInvalid for more than 2 GiB, which an Arrow
        binary array cannot hold."""
        array = column if column.type == pa.binary() else column.cast(pa.binary())
        if array.null_count or array.offset:
            array = array.take(pa.array(np.arange(len(array), dtype=np.int64)))  # compacts; nulls then take no bytes
        _, offsets, data = array.buffers()
        if not len(array):
            return cls(array, np.zeros(1, dtype=np.int32), np.zeros(0, dtype=np.uint8))
        bounds = np.frombuffer(offsets, dtype=np.int32, count=len(array) + 1)
        return cls(array, bounds, np.frombuffer(data or b"", dtype=np.uint8))

    def __len__(self) -> int:
        return len(self.array)

    @property
    def null_count(self) -> int:
        return int(self.array.null_count)

    @property
    def valid(self) -> np.ndarray:
        """A mask: true where there is a value."""
        return np.asarray(self.array.is_valid().to_numpy(zero_copy_only=False))

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @property
    def used(self) -> np.ndarray:
        """All values' bytes, one after the other."""
        return self.data[self.offsets[0] : self.offsets[-1]]

    def string(self) -> pa.Array:
        """The values as Arrow strings, not checked to be UTF-8: for parsers that accept ASCII only."""
        return self.array.view(pa.string())

    def valid_string(self) -> pa.Array:
        """The values as strings; raises ArrowInvalid unless every value is UTF-8."""
        return self.array.cast(pa.string())

    @property
    def is_utf_8(self) -> bool:
        try:
            self.valid_string()
        except pa.ArrowInvalid:
            return False
        return True

    def only(self, allowed: bytes) -> bool:
        """Whether every byte of every value is one of ``allowed``."""
        table = np.zeros(256, dtype=bool)
        table[np.frombuffer(allowed, dtype=np.uint8)] = True
        return bool(table[self.used].all())

    def where(self, rows: np.ndarray) -> TextColumn:
        """These rows alone."""
        return TextColumn.of(self.array.filter(pa.array(rows)))

    def without(self, rows: np.ndarray) -> TextColumn:
        """The column with these rows set to null."""
        return TextColumn.of(pc.if_else(pa.array(rows), pa.scalar(None, pa.binary()), self.array))

    def holding(self, data: np.ndarray, lengths: np.ndarray) -> pa.Array:
        """A binary array with the same nulls, of values with these lengths: one after the other they are ``data``."""
        offsets = np.zeros(len(self) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        buffers = [self.array.buffers()[0], pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)

    def byte(self, position: int) -> np.ndarray:
        """The byte at ``position`` of each value (negative: counted from its end); 0 where the value is too short."""
        at = self.offsets[:-1] + position if position >= 0 else self.offsets[1:] + position
        inside = (at >= self.offsets[:-1]) & (at < self.offsets[1:])
        if not self.data.size:
            return np.zeros(len(self), dtype=np.uint8)
        return np.where(inside, self.data[np.where(inside, at, 0)], 0).astype(np.uint8)


def mask_where(condition: pa.Array) -> np.ndarray:
    """An Arrow boolean as a NumPy mask; null counts as false."""
    return np.asarray(condition.fill_null(False).to_numpy(zero_copy_only=False))
