"""Finds JSON numbers that a variant would change: it has decimals of at most 38 digits, and doubles for the rest."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from spark_jobs.decode.quoted_text import escapes_and_quotes
from spark_jobs.decode.text_column import TextColumn, mask_where

_MOST_DIGITS = 38
# a quick pre-check of the whole text; it also matches inside strings
_MAY_BE = rf"[0-9][eE]|[0-9.]{{{_MOST_DIGITS + 1}}}"
_POINT = ord(".")


def with_other_numbers(text: TextColumn) -> np.ndarray:
    """A mask of the values that hold a number with an exponent, or with more digits than a decimal."""
    suspects = mask_where(pc.match_substring_regex(text.string(), _MAY_BE))
    return _with_other_numbers(text.without(~suspects)) if suspects.any() else suspects


def _with_other_numbers(text: TextColumn) -> np.ndarray:
    data, ends = text.used, text.offsets - text.offsets[0]
    _, quotes = escapes_and_quotes(data)
    inside = (np.cumsum(quotes, dtype=np.uint8) & 1).astype(bool)  # every value closes its strings
    is_digit = (data >= ord("0")) & (data <= ord("9")) & ~inside
    in_number = is_digit | ((data == _POINT) & ~inside)
    # values lie back to back, so a number may also begin or end where its value does
    edge = np.zeros(len(data) + 1, dtype=bool)
    edge[ends] = True
    begins = np.flatnonzero(in_number & (edge[:-1] | ~np.append(False, in_number[:-1])))
    stops = np.flatnonzero(in_number & (edge[1:] | ~np.append(in_number[1:], False))) + 1
    digits = np.concatenate([[0], np.cumsum(is_digit)])
    following = np.append(data, 0)[stops] | 0x20  # in lower case
    other = (digits[stops] - digits[begins] > _MOST_DIGITS) | (following == ord("e"))
    rows = np.searchsorted(ends, begins[other], side="right") - 1
    has_other = np.zeros(len(text), dtype=bool)
    has_other[rows] = True
    return has_other
