"""Finds where the columns of many tuples lie in one buffer, by walking all tuples in lockstep, column by column.

The walk keeps a vector with a position for every tuple. For each column it reads all kind bytes at once, then the
lengths of those that carry a value, and moves all positions on. No Python runs per row, and no value is copied. Nothing
is read past a message's end: each step is checked before the next one relies on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NULL, UNCHANGED, TEXT, BINARY = (ord(kind) for kind in "nutb")
ABSENT = 0  # the change has no such tuple
LATER = ord("l")  # not of the protocol: the tuple is older than the column

_WIDTH_SIZE = 2  # number of columns
_LENGTH_SIZE = 4


class DamagedError(Exception):
    """Some messages are damaged; ``rows`` are the rows of the vector that failed the check."""

    def __init__(self, rows: np.ndarray) -> None:
        super().__init__(rows)
        self.rows = rows


@dataclass(frozen=True)
class TupleVectors:
    """``kinds``, ``starts``, ``lengths``: one row per column of the relation, one slot per tuple.

    A kind is ABSENT, LATER, NULL, UNCHANGED, TEXT or BINARY; starts count from the buffer's first byte; the length is 0
    where there is no value.
    """

    kinds: np.ndarray  # uint8  (columns, tuples)
    starts: np.ndarray  # int64
    lengths: np.ndarray  # int32

    @classmethod
    def absent(cls, columns: int, tuples: int) -> TupleVectors:
        return cls(
            np.zeros((columns, tuples), dtype=np.uint8),
            np.zeros((columns, tuples), dtype=np.int64),
            np.zeros((columns, tuples), dtype=np.int32),
        )


def has_value(kinds: np.ndarray) -> np.ndarray:
    """Which columns of which tuples have a value, so are neither null nor left out."""
    return np.asarray((kinds == TEXT) | (kinds == BINARY))


class MessageBytes:
    """The shared buffer, with unaligned big-endian views of it."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self._uint16 = _unaligned(data, ">u2")
        self._uint32 = _unaligned(data, ">u4")

    def uint16(self, at: np.ndarray) -> np.ndarray:
        return np.asarray(self._uint16[at], dtype=np.int64)

    def uint32(self, at: np.ndarray) -> np.ndarray:
        return np.asarray(self._uint32[at], dtype=np.int64)

    def uint32_or_zero(self, at: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Zero where ``where`` is false: the buffer may end there."""
        return np.asarray(np.where(where, self._uint32[np.where(where, at, 0)], 0), dtype=np.int64)


def _unaligned(data: np.ndarray, dtype: str) -> np.ndarray:
    size = np.dtype(dtype).itemsize
    if len(data) < size:
        return np.zeros(1, dtype=dtype)  # only ``uint32_or_zero`` reads it, and discards the value
    return np.asarray(np.ndarray(shape=(len(data) - size + 1,), dtype=dtype, buffer=data, strides=(1,)))


def walk(
    message: MessageBytes, at: np.ndarray, end: np.ndarray, into: TupleVectors, slots: np.ndarray | slice
) -> np.ndarray:
    """Read one tuple per row, starting at ``at`` and not past ``end``, into the ``slots`` of ``into``.

    Returns the positions after the tuples. Raises DamagedError.
    """
    require(at + _WIDTH_SIZE <= end)
    require(message.uint16(at) == len(into.kinds))
    at = at + _WIDTH_SIZE
    for column in range(len(into.kinds)):
        require(at < end)
        kind = message.data[at]
        has_value = kind == TEXT
        if has_value.all():
            require(at + 1 + _LENGTH_SIZE <= end)
            length = message.uint32(at + 1)
            start = at + (1 + _LENGTH_SIZE)
        else:
            has_value |= kind == BINARY
            require(has_value | (kind == NULL) | (kind == UNCHANGED))
            start = at + np.where(has_value, 1 + _LENGTH_SIZE, 1)
            require(start <= end)
            length = message.uint32_or_zero(at + 1, has_value)
        at = start + length
        require(at <= end)
        into.kinds[column, slots] = kind
        into.starts[column, slots] = start
        into.lengths[column, slots] = length
    return at


def require(right: np.ndarray) -> None:
    """Raise DamagedError with the rows that are not ``right``, if any."""
    if not right.all():
        raise DamagedError(np.flatnonzero(~right))
