"""One-dimensional arrays as ``array_out`` writes them, a column at a time → the texts of all their elements.

``{1,NULL,"a b","say \\"yes\\"",""}``: an element stands between quotes where it could be taken for something else, and
there a backslash makes the next byte a plain one. All is found by arithmetic on the bytes of the whole column: where
quotes are, by which bytes are between them, and so which commas part two elements.
https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.gather import gather
from spark_jobs.decode.quoted_text import escapes_and_quotes, marked
from spark_jobs.decode.text_column import TextColumn, mask_where

_OPEN, _CLOSE, _BETWEEN = (ord(byte) for byte in "{},")
# several dimensions, or bounds in front
_OTHER_SHAPE = r"(?s)^(((\[-?[0-9]+:-?[0-9]+\])+=\{.*)|\{\{.*\})\}$"
# of each byte: whether it stands between quotes alone
_ASKS_FOR_QUOTES = np.zeros(256, dtype=bool)
_ASKS_FOR_QUOTES[np.frombuffer(b" \t\n\v\f\r\\", dtype=np.uint8)] = True
_NULL = b"NULL"


@dataclass(frozen=True)
class ArrayElements:
    """``texts``: the elements of all arrays, one after the other, as the element's type prints them. ``ends``: n + 1
    places in them, between which each row's elements lie. ``other_shape``: rows with several dimensions, or a lower
    bound other than 1; these have no elements. ``missing``: rows without an array, and those of another shape."""

    texts: TextColumn
    ends: np.ndarray
    other_shape: np.ndarray
    missing: np.ndarray

    def lists(self, values: pa.Array) -> pa.Array:
        """The arrays, of elements with these values."""
        return pa.ListArray.from_arrays(pa.array(self.ends, pa.int32()), values, mask=pa.array(self.missing))

    def rows_of(self, elements: np.ndarray) -> np.ndarray:
        """The rows that hold one of these elements, a mask."""
        before = np.concatenate([[0], np.cumsum(elements)])
        return np.asarray(before[self.ends[1:]] > before[self.ends[:-1]])


def array_elements(text: TextColumn) -> ArrayElements:
    """Raises ValueError for what ``array_out`` does not write."""
    is_flat = (text.byte(0) == _OPEN) & (text.byte(1) != _OPEN) & (text.byte(-1) == _CLOSE) & (text.lengths > 1)
    others = text.valid & ~is_flat
    if (others & ~mask_where(pc.match_substring_regex(text.string(), _OTHER_SHAPE))).any():
        raise ValueError("array")
    # an empty array has no element between its braces, and no comma
    filled = text.without(others | (is_flat & (text.lengths == 2)))
    ends = (filled.offsets - filled.offsets[0]).astype(np.int64)
    texts, lefts = _parted(filled.used, ends)
    return ArrayElements(TextColumn.of(texts), np.searchsorted(lefts, ends), others, ~is_flat)


def _parted(data: np.ndarray, ends: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The elements' texts, and the places of the brace or comma before each. ``ends``: where rows begin and end."""
    rows = np.unique(ends)
    escapes, quotes = escapes_and_quotes(data)
    inside = (np.cumsum(quotes, dtype=np.uint8) & 1).astype(bool)  # opening quotes too
    outside = ~inside & ~quotes
    first, last = marked(rows[:-1], len(data)), marked(rows[1:] - 1, len(data))
    comma = outside & (data == _BETWEEN)
    _check(data, outside, first, last)
    _check_quotes(quotes, inside, before=first | comma, after=last | comma)
    if (escapes & ~inside).any():
        raise ValueError("array")
    lefts, rights = np.flatnonzero(first | comma), np.flatnonzero(last | comma)
    if (rights - lefts < 2).any():  # an empty text stands between quotes
        raise ValueError("array")
    is_null = _nulls(data, lefts, rights)
    if quotes.any():
        kept = ~(quotes | escapes)
        place = np.concatenate([[0], np.cumsum(kept)])
        starts, stops, data = place[lefts + 1], place[rights], data[kept]
    else:
        starts, stops = lefts + 1, rights
    return gather(data, starts, stops - starts, ~is_null).combine_chunks(), lefts


def _check(data: np.ndarray, outside: np.ndarray, first: np.ndarray, last: np.ndarray) -> None:
    """Outside of quotes braces stand at the ends alone, and bytes that ask for quotes nowhere."""
    braces = ((data == _OPEN) != first) | ((data == _CLOSE) != last)
    wrong = outside & (braces | _ASKS_FOR_QUOTES[data])
    if wrong.any() or not outside[first | last].all():
        raise ValueError("array")


def _check_quotes(quotes: np.ndarray, inside: np.ndarray, *, before: np.ndarray, after: np.ndarray) -> None:
    """Around an element as a whole; the braces at the ends lie outside, so there is a byte on each side."""
    opening, closing = np.flatnonzero(quotes & inside), np.flatnonzero(quotes & ~inside)
    if not before[opening - 1].all() or not after[closing + 1].all():
        raise ValueError("array")


def _nulls(data: np.ndarray, lefts: np.ndarray, rights: np.ndarray) -> np.ndarray:
    """Which elements are NULL; it is written so, and a text that reads like it stands between quotes."""
    is_null = np.zeros(len(lefts), dtype=bool)
    short = np.flatnonzero(rights - lefts - 1 == len(_NULL))
    letters = data[lefts[short, None] + 1 + np.arange(len(_NULL))] if len(short) else np.zeros((0, len(_NULL)))
    wanted = np.frombuffer(_NULL, dtype=np.uint8)
    is_null[short] = (letters == wanted).all(axis=1)
    if ((letters == wanted) | (letters == wanted + 32)).all(axis=1).sum() != is_null.sum():
        raise ValueError("array")
    return is_null
