"""Rows that are equal if PostgreSQL prints them alike, found by a hash of the whole row.

A hash only says where to look: two rows are the same row when all their columns are equal. Of rows that are kept to be
looked up no two have one hash, as they are hashed anew until that is so. So each row has one candidate at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import as_strided

_WORD = 8  # bytes
_LONG = 256  # bytes, from which on a value is hashed by itself: fewer have so many words than a step is worth
_PIECE = 16_384  # rows hashed at a time: what is known of them stays in the processor's cache
_FACTOR, _NULL = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x9E3779B97F4A7C15)
# of a table of hashes' first bits: an eighth of it is filled, so these bits rule out most rows that are not in it
_SPARE_BITS = 3


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values that are the same to Arrow if PostgreSQL prints them alike. Of floats: their bits, those of one NaN. Of
    arrays: a text."""
    if pa.types.is_list(column.type):
        return pa.chunked_array([pa.array(map(_text, column.to_pylist()), pa.string())])
    if not pa.types.is_floating(column.type):
        return column
    bits = pa.int32() if column.type == pa.float32() else pa.int64()
    of_one_nan = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    return pa.chunked_array([chunk.view(bits) for chunk in of_one_nan.chunks], bits)


def comparable_rows(rows: pa.Table) -> pa.Table:
    """All columns of them as ``comparable`` makes them."""
    return pa.table([comparable(column) for column in rows.columns], rows.column_names)


@dataclass(frozen=True)
class EqualRows:
    """Sets of equal rows, in no order. ``firsts``: the place of each set's first row. ``sets``: of each row, its set.
    ``hashes``: of each set's rows, by ``seed``: no other set has it."""

    firsts: np.ndarray
    sets: np.ndarray
    hashes: np.ndarray
    seed: int

    @classmethod
    def of(cls, rows: pa.Table) -> EqualRows:
        """``rows`` are ``comparable``."""
        return next(equal for seed in count() if (equal := cls._of(rows, seed)) is not None)

    @classmethod
    def _of(cls, rows: pa.Table, seed: int) -> EqualRows | None:
        """None if rows that differ have one hash."""
        hashes = row_hashes(rows, seed)
        order = np.argsort(hashes)
        ascending = hashes[order]
        begins = np.concatenate([[True], ascending[1:] != ascending[:-1]])[: len(order)]
        numbers, again = np.cumsum(begins) - 1, np.flatnonzero(~begins)
        if not _equal(rows.take(order[again]), rows.take(order[begins][numbers[again]])).all():
            return None
        firsts = np.minimum.reduceat(order, np.flatnonzero(begins)) if len(order) else order
        sets = np.empty_like(numbers)
        sets[order] = numbers
        return cls(firsts, sets, ascending[begins], seed)


@dataclass(frozen=True)
class DistinctRows:
    """``comparable`` rows of which no two are equal, to be looked up. ``hashes``: in ascending order, each of the row
    at the same one of ``places``; by ``seed``. ``is_first``: for each beginning of a hash whether one has it."""

    rows: pa.Table
    hashes: np.ndarray
    places: np.ndarray
    seed: int
    is_first: np.ndarray

    @classmethod
    def of(cls, rows: pa.Table) -> DistinctRows | None:
        """None if two of them are equal."""
        equal = EqualRows.of(rows)
        if len(equal.firsts) < rows.num_rows:
            return None
        is_first = np.zeros(1 << (rows.num_rows.bit_length() + _SPARE_BITS), dtype=bool)
        is_first[_beginnings(equal.hashes, is_first)] = True
        return cls(rows, equal.hashes, equal.firsts, equal.seed, is_first)

    def found(self, others: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Which of the ``comparable`` rows ``others`` are equal to one of these, in ascending order, and to which."""
        if not self.rows.num_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        hashes = row_hashes(others, self.seed)
        near = np.flatnonzero(self.is_first[_beginnings(hashes, self.is_first)])
        at = np.minimum(np.searchsorted(self.hashes, hashes[near]), len(self.hashes) - 1)
        is_same = self.hashes[at] == hashes[near]
        near, places = near[is_same], self.places[at[is_same]]
        is_equal = _equal(others.take(near), self.rows.take(places))
        return near[is_equal], places[is_equal]

    def places_of(self, others: pa.Table) -> pa.Array:
        """For each of the ``comparable`` rows ``others`` the place of the one that is equal; null if there is none."""
        found, among = self.found(others)
        places, is_missing = np.zeros(others.num_rows, dtype=np.int64), np.ones(others.num_rows, dtype=bool)
        places[found], is_missing[found] = among, False
        return pa.array(places, mask=is_missing)


def row_hashes(rows: pa.Table, seed: int = 0) -> np.ndarray:
    """64 bits for each row; the same for rows that are equal. ``rows`` are ``comparable``."""
    hashes = np.full(rows.num_rows, np.uint64(seed), dtype=np.uint64)
    for first in range(0, rows.num_rows, _PIECE):
        for column in rows.columns:
            at = first
            for chunk in column.slice(first, _PIECE).chunks:
                _hash_column(chunk, hashes[at : at + len(chunk)])
                at += len(chunk)
    return hashes


def _beginnings(hashes: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The first bits of the hashes, as places in a table of two to some power."""
    return hashes >> np.uint64(65 - len(table).bit_length())


def _hash_column(values: pa.Array, hashes: np.ndarray) -> None:
    """Add the values to the hashes of their rows."""
    if values.null_count:  # a step of its own, so that no value is like a null for every seed
        nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        hashes[nulls] = _mixed(hashes[nulls], _NULL)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        _hash_bytes(values.fill_null(b"" if pa.types.is_binary(values.type) else ""), hashes)
        return
    width = values.type.bit_width // 8
    words = np.frombuffer(values.buffers()[1], f"<u{min(width, _WORD)}").reshape(-1, max(1, width // _WORD))
    words = words[values.offset : values.offset + len(values)]
    if values.null_count:  # what lies under a null is not defined
        words = np.where(values.is_valid().to_numpy(zero_copy_only=False)[:, None], words, 0)
    for word in words.T:
        hashes[:] = _mixed(hashes, word.astype(np.uint64))


def _hash_bytes(values: pa.Array, hashes: np.ndarray) -> None:
    """Word by word, all rows at once."""
    if not len(values):
        return
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    buffer = values.buffers()[2]
    data = np.concatenate([np.frombuffer(buffer or b"", np.uint8)[begin:end], np.zeros(_WORD, np.uint8)])
    words = as_strided(data[:_WORD].view("<u8"), shape=(end - begin + 1,), strides=(1,))
    starts = offsets[:-1].astype(np.int64) - begin
    lengths = np.diff(offsets).astype(np.int64)
    hashes[:] = _mixed(hashes, lengths.astype(np.uint64))
    for row in np.flatnonzero(lengths >= _LONG):
        value = data[starts[row] : starts[row] + lengths[row]].tobytes()
        hashes[row] = np.int64(hash(hashes[row].tobytes() + value)).view(np.uint64)
    rows = np.flatnonzero((lengths > 0) & (lengths < _LONG))
    starts, lengths, mixed = starts[rows], lengths[rows], hashes[rows]
    while len(rows):
        spare = np.maximum(_WORD - lengths, 0) * 8
        mixed = _mixed(mixed, words[starts] << spare.astype(np.uint64))
        starts, lengths, is_longer = starts + _WORD, lengths - _WORD, lengths > _WORD
        if not is_longer.all():
            hashes[rows] = mixed
            rows, starts, lengths, mixed = (each[is_longer] for each in (rows, starts, lengths, mixed))


def _mixed(hashes: np.ndarray, words: np.ndarray | np.uint64) -> np.ndarray:
    """With one word more in each hash; two words give the same hash with the same one only if they are equal."""
    mixed = hashes ^ words
    mixed ^= mixed >> np.uint64(32)
    mixed *= _FACTOR
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _equal(rows: pa.Table, others: pa.Table) -> np.ndarray:
    """Whether each row is equal to that of the others."""
    columns = map(_equal_values, rows.columns, others.columns)
    return np.asarray(reduce(np.logical_and, columns, np.ones(rows.num_rows, dtype=bool)))


def _equal_values(own: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray:
    equal = pc.fill_null(pc.equal(own, other), False)
    if own.null_count and other.null_count:
        equal = pc.or_(equal, pc.and_(pc.is_null(own), pc.is_null(other)))
    return np.asarray(equal.to_numpy())


def _text(array: object) -> str | None:
    return None if array is None else repr(array)
