"""Vectorised reads of words, quoted values and literals from many text lines in one buffer, at one position per row.

The positions of all spaces and quotes are found once per chunk; finding a row's next one is then a binary search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_SPACE, _QUOTE = ord(" "), ord("'")
_BLOCK = 8


@dataclass(frozen=True)
class Quoted:
    """For each row where the value begins and ends inside its quotes, and which quotes are inside it:
    ``LineText.quotes[first:stop]``. ``closed``: its closing quote lies before the line's end."""

    begin: np.ndarray
    end: np.ndarray
    first: np.ndarray
    stop: np.ndarray
    closed: np.ndarray


class LineText:
    """``data[low:high]`` holds the lines. Positions count from the first byte of ``data``."""

    def __init__(self, data: np.ndarray, low: int, high: int) -> None:
        self.data = data
        self._high = high
        self._words = np.ndarray(
            shape=(max(len(data) - _BLOCK + 1, 0),), dtype=np.uint64, buffer=np.ascontiguousarray(data), strides=(1,)
        )
        region = data[low:high]
        self._spaces = np.append(np.flatnonzero(region == _SPACE) + low, high)
        self.quotes = np.flatnonzero(region == _QUOTE) + low
        self._closing = _closing(self.quotes)

    def matches(self, at: np.ndarray, end: np.ndarray, literal: bytes) -> np.ndarray:
        """Whether ``literal`` stands at each position, and ends at or before ``end``."""
        size = len(literal)
        matches = at + size <= end
        place = at if matches.all() else np.where(matches, at, 0)
        if size < _BLOCK or not len(self._words):
            for offset in range(size):
                matches &= self.data[np.minimum(place + offset, len(self.data) - 1)] == literal[offset]
            return np.asarray(matches)
        last = len(self._words) - 1
        # the last block may overlap the one before it
        for offset in (*range(0, size - _BLOCK, _BLOCK), size - _BLOCK):
            block = np.frombuffer(literal, dtype=np.uint64, count=1, offset=offset)[0]
            matches &= self._words[np.minimum(place + offset, last)] == block
        return np.asarray(matches)

    def byte(self, at: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The byte at each position; 0 for positions at or after ``end``."""
        inside = at < end
        if inside.all():
            return np.asarray(self.data[at])
        return np.where(inside, self.data[np.where(inside, at, 0)], 0).astype(np.uint8)

    def word_end(self, at: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The next space at or after each position, or the line's end."""
        spaces = self._spaces[np.minimum(np.searchsorted(self._spaces, at), len(self._spaces) - 1)]
        return np.asarray(np.minimum(spaces, end))

    def quoted(self, at: np.ndarray, end: np.ndarray) -> Quoted:
        """The values whose opening quotes stand at these positions; the byte before must not be a quote."""
        opening = np.searchsorted(self.quotes, at)
        closing = self._closing[opening]
        closed = closing < len(self.quotes)
        place = self.quotes[np.where(closed, closing, 0)]
        closed &= place < end
        return Quoted(at + 1, np.where(closed, place, at + 1), opening + 1, np.where(closed, closing, 0), closed)


def _closing(quotes: np.ndarray) -> np.ndarray:
    """For each quote, the index of the quote that would close it if it were an opening one; ``len(quotes)`` if none.

    Quotes inside a value are doubled, so they come in runs of even length; the closing quote ends a run of odd length.
    In the run that the opening quote stands in, only the quotes after it count.
    """
    count = len(quotes)
    if not count:
        return np.zeros(0, dtype=np.int64)
    last = np.append(np.diff(quotes) != 1, True)  # the last quote of its run
    ends = np.flatnonzero(last)
    run = np.cumsum(last) - last
    lengths = np.diff(ends, prepend=-1)
    odd = np.where(lengths % 2 == 1, ends, count)
    # for each run the end of the next odd run, itself included
    next_odd = np.append(np.minimum.accumulate(odd[::-1])[::-1], count)
    left = ends[run] - np.arange(count)
    return np.asarray(np.where(left % 2 == 1, ends[run], next_odd[run + 1]))


def without_doubled_quotes(
    text: LineText, values: Quoted, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The bytes of these rows' values, one after the other, with each pair of quotes as one quote; and where each value
    begins in them, and its length."""
    begin, size = values.begin[rows], values.end[rows] - values.begin[rows]
    place = _ranges(begin, size)
    # drop the second quote of each pair inside a value
    inner = _ranges(values.first[rows], values.stop[rows] - values.first[rows])
    second = text.quotes[inner[1::2]]
    lengths = size - (values.stop[rows] - values.first[rows]) // 2
    is_kept = np.ones(len(place), dtype=bool)
    starts = np.cumsum(size) - size
    owner = np.repeat(np.arange(len(rows)), (values.stop[rows] - values.first[rows]) // 2)
    is_kept[second - begin[owner] + starts[owner]] = False
    return text.data[place[is_kept]], np.cumsum(lengths) - lengths, lengths


def _ranges(begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The numbers from ``begin`` to ``begin + size - 1`` of every row, concatenated."""
    total = int(size.sum())
    before = np.cumsum(size) - size
    return np.asarray(np.arange(total) + np.repeat(begin - before, size))


def all_bytes_in(text: LineText, begin: np.ndarray, size: np.ndarray, allowed: bytes) -> np.ndarray:
    """For each row, whether every byte of the span is one of ``allowed``."""
    wrong = ~np.isin(text.data[_ranges(begin, size)], np.frombuffer(allowed, dtype=np.uint8))
    return np.asarray(np.bincount(np.repeat(np.arange(len(begin)), size)[wrong], minlength=len(begin)) == 0)
