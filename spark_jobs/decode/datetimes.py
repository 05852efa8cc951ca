"""Turns ``DateStyle = ISO`` dates and timestamps into Arrow, and marks the values that the lake cannot hold.

The lake holds years 1 to 9999 (Spark's own range). PostgreSQL also writes ``infinity``, years with more than four
digits and years `` BC``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.text_column import TextColumn, mask_where

_DATE = r"\d{4,}-\d\d-\d\d"
_TIME = r" \d\d:\d\d:\d\d(\.\d{1,6})?"
_ZONE = r"[+-]\d\d(:\d\d){0,2}"
_INFINITY = r"-?infinity"
_ANY_DATE = rf"^({_DATE}( BC)?|{_INFINITY})$"
_ANY_TIMESTAMP = rf"^({_DATE}{_TIME}( BC)?|{_INFINITY})$"
_ANY_TIMESTAMPTZ = rf"^({_DATE}{_TIME}{_ZONE}( BC)?|{_INFINITY})$"

_FIRST_DAY = -719_162  # 0001-01-01 in days since 1970-01-01
DAY = 86_400_000_000
FIRST_MICROSECOND = _FIRST_DAY * DAY
LAST_MICROSECOND = 2_932_897 * DAY - 1  # 9999-12-31 23:59:59.999999
_SECOND = 1_000_000


def parse_dates(text: TextColumn) -> tuple[pa.Array, np.ndarray | None]:
    """The dates as date32, and a mask of the rows that the lake cannot hold, null in the first (None: no such row).

    Raises ValueError, ArrowInvalid.
    """
    regular = text.lengths == 10
    regular_text, odd = _set_odd_apart(text, regular, _ANY_DATE)
    values = regular_text.string().cast(pa.date32())
    days = values.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
    if (days < _FIRST_DAY).any():
        raise ValueError("year 0000")
    return values, odd


def parse_timestamps(text: TextColumn, *, with_zone: bool) -> tuple[pa.Array, np.ndarray | None]:
    """The timestamps as timestamp[us], in UTC when ``with_zone``, and a mask as ``parse_dates`` returns it.

    A session in UTC writes the offset ``+00``; other offsets are honoured, including those with seconds
    (``+00:19:32``). Raises ValueError, ArrowInvalid.
    """
    kind = pa.timestamp("us", tz="UTC") if with_zone else pa.timestamp("us")
    end = text.byte(-1)
    regular = (
        (text.byte(4) == ord("-"))
        & (text.byte(10) == ord(" "))
        & (text.byte(16) == ord(":"))
        & (end >= ord("0"))
        & (end <= ord("9"))
    )
    regular_text, odd = _set_odd_apart(text, regular, _ANY_TIMESTAMPTZ if with_zone else _ANY_TIMESTAMP)
    if mask_where(pc.starts_with(regular_text.string(), "0000-")).any():
        raise ValueError("year 0000")
    values = _zoned(regular_text, kind) if with_zone else regular_text.string().cast(kind)
    micros = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    outside = (micros < FIRST_MICROSECOND) | (micros > LAST_MICROSECOND)  # an offset can carry over the edge
    if outside.any():
        values = pc.if_else(pa.array(outside), pa.scalar(None, kind), values)
        odd = outside if odd is None else odd | outside
    return values, odd


def _set_odd_apart(text: TextColumn, regular: np.ndarray, any_form: str) -> tuple[TextColumn, np.ndarray | None]:
    """The text with all but the regular rows set to null, and a mask of those rows (None: no such row). Raises
    ValueError unless PostgreSQL could have written them."""
    odd = ~regular & text.valid
    if not odd.any():
        return text, None
    if not pc.all(pc.match_substring_regex(text.string().filter(pa.array(odd)), any_form)).as_py():
        raise ValueError("date or time")
    return text.without(odd), odd


def _zoned(text: TextColumn, kind: pa.DataType) -> pa.Array:
    """Arrow reads offsets ±HH and ±HH:MM; the seconds of ±HH:MM:SS are cut off and applied here."""
    seconds_follow = (text.byte(-3) == ord(":")) & (text.byte(-6) == ord(":"))
    if not seconds_follow.any():
        return text.string().cast(kind)
    mask = pa.array(seconds_follow)
    cut = pc.if_else(mask, pc.binary_slice(text.array, 0, -3), text.array).view(pa.string())
    digits = (text.byte(-2).astype(np.int64) - ord("0")) * 10 + text.byte(-1) - ord("0")
    sign = np.where(text.byte(-9) == ord("-"), 1, -1)  # UTC is local time minus the offset
    shift = pa.array(np.where(seconds_follow, digits * sign, 0) * _SECOND, pa.duration("us"))
    return pc.add(cut.cast(kind), shift)
