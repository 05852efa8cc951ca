"""Splits a column of one-dimensional arrays, as ``array_out`` writes them, into the texts of all their elements.

``{1,NULL,"a b","say \\"yes\\"",""}``: an element is quoted where it would be ambiguous, and inside quotes a backslash
escapes the next byte. All is found by arithmetic on the bytes of the whole column: first the quotes, then the bytes
inside them, then the commas that separate elements.
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
# several dimensions, or an explicit lower bound
_OTHER_SHAPE = r"(?s)^(((\[-?[0-9]+:-?[0-9]+\])+=\{.*)|\{\{.*\})\}$"
# for each byte, whether array_out writes it only inside quotes
_QUOTED_ONLY = np.zeros(256, dtype=bool)
_QUOTED_ONLY[np.frombuffer(b" \t\n\v\f\r\\", dtype=np.uint8)] = True
_NULL = b"NULL"


@dataclass(frozen=True)
class ArrayElements:
    """``texts``: the elements of all arrays, one after the other, as the element's type prints them. ``ends``: n + 1
    offsets into them; row *i* has the elements from ``ends[i]`` to ``ends[i + 1]``. ``other_shape``: rows with several
    dimensions, or a lower bound other than 1; they have no elements here. ``missing``: those rows, and null rows."""

    texts: TextColumn
    ends: np.ndarray
    other_shape: np.ndarray
    missing: np.ndarray

    def lists(self, values: pa.Array) -> pa.Array:
        """The list array with these values as its elements."""
        return pa.ListArray.from_arrays(pa.array(self.ends, pa.int32()), values, mask=pa.array(self.missing))

    def rows_of(self, elements: np.ndarray) -> np.ndarray:
        """A mask of the rows that hold at least one of these elements (a mask too)."""
        before = np.concatenate([[0], np.cumsum(elements)])
        return np.asarray(before[self.ends[1:]] > before[self.ends[:-1]])


def array_elements(text: TextColumn) -> ArrayElements:
    """Split the arrays. Raises ValueError for text that ``array_out`` does not write."""
    is_flat = (text.byte(0) == _OPEN) & (text.byte(1) != _OPEN) & (text.byte(-1) == _CLOSE) & (text.lengths > 1)
    others = text.valid & ~is_flat
    if (others & ~mask_where(pc.match_substring_regex(text.string(), _OTHER_SHAPE))).any():
        raise ValueError("array")
    # {} would otherwise count as one empty element
    filled = text.without(others | (is_flat & (text.lengths == 2)))
    ends = (filled.offsets - filled.offsets[0]).astype(np.int64)
    texts, lefts = _parted(filled.used, ends)
    return ArrayElements(TextColumn.of(texts), np.searchsorted(lefts, ends), others, ~is_flat)


def _parted(data: np.ndarray, ends: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The elements' texts, and the position of the brace or comma before each. ``ends``: where rows begin and end."""
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
    if (rights - lefts < 2).any():  # array_out writes an empty element as ""
        raise ValueError("array")
    is_null = _nulls(data, lefts, rights)
    if quotes.any():
        is_kept = ~(quotes | escapes)
        place = np.concatenate([[0], np.cumsum(is_kept)])
        starts, stops, data = place[lefts + 1], place[rights], data[is_kept]
    else:
        starts, stops = lefts + 1, rights
    return gather(data, starts, stops - starts, ~is_null).combine_chunks(), lefts


def _check(data: np.ndarray, outside: np.ndarray, first: np.ndarray, last: np.ndarray) -> None:
    """Outside quotes there must be no braces but those around each array, and no byte that needs quotes."""
    braces = ((data == _OPEN) != first) | ((data == _CLOSE) != last)
    wrong = outside & (braces | _QUOTED_ONLY[data])
    if wrong.any() or not outside[first | last].all():
        raise ValueError("array")


def _check_quotes(quotes: np.ndarray, inside: np.ndarray, *, before: np.ndarray, after: np.ndarray) -> None:
    """Quotes must enclose whole elements. ``_check`` has found braces at both ends, so each quote has neighbours."""
    opening, closing = np.flatnonzero(quotes & inside), np.flatnonzero(quotes & ~inside)
    if not before[opening - 1].all() or not after[closing + 1].all():
        raise ValueError("array")


def _nulls(data: np.ndarray, lefts: np.ndarray, rights: np.ndarray) -> np.ndarray:
    """Which elements are NULL. ``array_out`` writes it in upper case, and quotes any text that spells it."""
    is_null = np.zeros(len(lefts), dtype=bool)
    short = np.flatnonzero(rights - lefts - 1 == len(_NULL))
    letters = data[lefts[short, None] + 1 + np.arange(len(_NULL))] if len(short) else np.zeros((0, len(_NULL)))
    word = np.frombuffer(_NULL, dtype=np.uint8)
    is_null[short] = (letters == word).all(axis=1)
    if ((letters == word) | (letters == word + 32)).all(axis=1).sum() != is_null.sum():
        raise ValueError("array")
    return is_null
