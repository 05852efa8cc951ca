"""Turns columns of binary numeric into decimals or into text.

A value is ndigits, weight, sign and dscale (two bytes each), then ndigits groups of four decimal digits, of which the
first counts 10000^weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.decode.binary.ragged import Piece, constant, quads, text_of
from spark_jobs.decode.text_column import TextColumn

_HEADER = 4  # words
_NEGATIVE, _NAN, _INFINITY, _MINUS_INFINITY = 0x4000, 0xC000, 0xD000, 0xF000
_BASE = 10_000
_GROUP = 4
_POWERS = 10 ** np.arange(19, dtype=np.int64)
_MAX_DSCALE = 0x3FFF
_WIDEST = 24  # groups before and after the decimal point: beyond that, the matrix would be mostly padding


@dataclass(frozen=True)
class Numerics:
    """The headers of a column's non-null values."""

    words: np.ndarray
    starts: np.ndarray
    ndigits: np.ndarray
    weight: np.ndarray
    negative: np.ndarray
    special: np.ndarray  # NaN, Infinity, -Infinity
    dscale: np.ndarray

    @classmethod
    def of(cls, column: TextColumn) -> Numerics:
        """Read the headers. Raises ValueError for what ``numeric_send`` does not write."""
        lengths = column.lengths[column.valid].astype(np.int64)
        if (lengths < 2 * _HEADER).any() or (lengths & 1).any():
            raise ValueError("numeric")
        words = column.used.view(">u2").astype(np.int32)
        starts = (column.offsets[:-1][column.valid].astype(np.int64) - column.offsets[0]) >> 1
        ndigits, sign = words[starts], words[starts + 2]
        weight = words[starts + 1].astype(np.int16).astype(np.int64)
        special = (sign == _NAN) | (sign == _INFINITY) | (sign == _MINUS_INFINITY)
        right = special & (ndigits == 0) | (sign == 0) | (sign == _NEGATIVE)
        dscale = words[starts + 3]
        if not right.all() or (lengths != 2 * (_HEADER + ndigits)).any() or (dscale > _MAX_DSCALE).any():
            raise ValueError("numeric")
        filled = starts[ndigits > 0]
        last = filled + _HEADER + ndigits[ndigits > 0] - 1
        if (words[filled + _HEADER] == 0).any() or (words[last] == 0).any():  # PostgreSQL strips zero groups
            raise ValueError("numeric")
        return cls(words, starts, ndigits, weight, sign == _NEGATIVE, special, dscale)

    def __len__(self) -> int:
        return len(self.starts)

    def group(self, index: np.ndarray | int) -> np.ndarray:
        """Each value's group number ``index``; 0 where it has none. Raises ValueError for groups above 9999."""
        has_group = (index < self.ndigits) & (np.asarray(index) >= 0)
        group = np.where(has_group, self.words[np.where(has_group, self.starts + _HEADER + index, 0)], 0)
        if (group >= _BASE).any():
            raise ValueError("numeric")
        return group

    def fit_words(self) -> bool:
        """Whether the digits of each value, without the decimal point, fit an int64."""
        if not len(self):
            return True
        five = self.ndigits == 5
        return int(self.ndigits.max()) <= 5 and not (self.group(0)[five] > 900).any()


def decimals(column: TextColumn, to: pa.DataType) -> tuple[pa.Array, np.ndarray] | None:
    """The values as ``to``, a decimal type, and a mask of NaN and infinities, null in the first. None if a value's
    digits do not fit 64 bits. Raises ValueError for another scale, or more digits than the type's precision."""
    numerics = Numerics.of(column)
    if not numerics.fit_words():
        return None
    unscaled = np.zeros(len(numerics), dtype=np.int64)
    for index in range(int(numerics.ndigits.max(initial=0))):
        has = index < numerics.ndigits
        unscaled = np.where(has, unscaled * _BASE + numerics.group(index), unscaled)
    finite = ~numerics.special
    if (numerics.dscale[finite] != to.scale).any():
        raise ValueError("numeric")
    shift = _GROUP * (numerics.weight - numerics.ndigits + 1) + to.scale
    shift = np.where(unscaled == 0, 0, shift)
    if (shift < -_GROUP).any() or (shift > to.precision).any():
        raise ValueError("numeric")
    if ((shift > 0) & (unscaled >= _POWERS[np.clip(18 - shift, 0, 18)])).any() or (shift > 18).any():
        return None
    whole, rest = np.divmod(unscaled, _POWERS[np.clip(-shift, 0, _GROUP)])
    if rest.any():
        raise ValueError("numeric")
    whole *= _POWERS[np.clip(shift, 0, 18)]
    if to.precision < len(_POWERS) and (whole >= _POWERS[to.precision]).any():
        raise ValueError("numeric")
    return _decimal_array(np.where(numerics.negative, -whole, whole), numerics.special, column, to)


def _decimal_array(
    unscaled: np.ndarray, special: np.ndarray, column: TextColumn, to: pa.DataType
) -> tuple[pa.Array, np.ndarray]:
    limbs = np.zeros((len(column), 2), dtype=np.int64)  # little-endian, two's complement
    outside = np.zeros(len(column), dtype=bool)
    valid = column.valid
    limbs[valid, 0], limbs[valid, 1] = unscaled, unscaled >> 63
    outside[valid] = special
    bitmap = pa.array(valid & ~outside).buffers()[1]
    return pa.Array.from_buffers(to, len(column), [bitmap, pa.py_buffer(limbs)]), outside


def numeric_texts(column: TextColumn) -> pa.Array | None:
    """The values as ``numeric_out`` writes them; None if any is NaN, infinite, or too long for a matrix."""
    numerics = Numerics.of(column)
    before = int(numerics.weight.max(initial=0)) + 1
    behind = -(-int(numerics.dscale.max(initial=0)) // _GROUP)
    if numerics.special.any() or before > _WIDEST or behind > _WIDEST:
        return None
    rows = len(numerics)
    whole = np.concatenate([quads(numerics.group(numerics.weight - place)) for place in range(before - 1, -1, -1)], 1)
    leading = np.maximum.accumulate(whole != ord("0"), axis=1)
    leading[:, -1] = True
    pieces: list[Piece] = [(constant("-", rows), numerics.negative[:, None]), (whole, leading)]
    # there must be no group after the last digit that is shown
    if (_GROUP * (numerics.ndigits - 1 - numerics.weight) > numerics.dscale + _GROUP - 1)[numerics.ndigits > 0].any():
        raise ValueError("numeric")
    if behind:
        places = [quads(numerics.group(numerics.weight + place)) for place in range(1, behind + 1)]
        fraction = np.concatenate(places, axis=1)
        is_shown = np.arange(_GROUP * behind) < numerics.dscale[:, None]
        if (fraction[~is_shown] != ord("0")).any():
            raise ValueError("numeric")
        pieces += [(constant(".", rows), (numerics.dscale > 0)[:, None]), (fraction, is_shown)]
    return text_of(pieces, column)
