"""Turns columns of binary dates and times into Arrow, marking the values that the lake cannot hold, and into text.

The lake holds years 1 to 9999. Text for columns with values outside is left to ``datetime_text``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.binary.datetime_text import (
    DAY,
    END_DAY,
    END_TIMESTAMP,
    EPOCH_DAYS,
    MIN_DAY,
    MIN_TIMESTAMP,
)
from spark_jobs.decode.binary.fixed_width import arrow_of, numbers
from spark_jobs.decode.text_column import TextColumn

_FIRST_DAY, _LAST_DAY = -719_162 - EPOCH_DAYS, 2_932_896 - EPOCH_DAYS  # 0001-01-01, 9999-12-31
_FIRST, _END = _FIRST_DAY * DAY, (_LAST_DAY + 1) * DAY


def dates(column: TextColumn) -> tuple[pa.Array, np.ndarray | None]:
    """The dates as date32, and a mask of the rows that the lake cannot hold, null in the first (None: no such row).

    Raises ValueError for days that PostgreSQL does not have.
    """
    days = numbers(column, ">i4")
    outside = (days < _FIRST_DAY) | (days > _LAST_DAY)
    if not outside.any():
        return arrow_of(days + np.int32(EPOCH_DAYS), pa.date32(), column), None
    _require_known(days[outside], np.iinfo(np.int32), MIN_DAY, END_DAY)
    inside = np.where(outside, 0, days) + np.int32(EPOCH_DAYS)
    return arrow_of(inside.astype(np.int32), pa.date32(), column, outside), outside


def timestamps(column: TextColumn, to: pa.DataType) -> tuple[pa.Array, np.ndarray | None]:
    """The timestamps as ``to`` (timestamp[us], in UTC or without a zone), and a mask as ``dates`` returns it."""
    micros = numbers(column, ">i8")
    outside = (micros < _FIRST) | (micros >= _END)
    if not outside.any():
        return arrow_of(micros + EPOCH_DAYS * DAY, to, column), None
    _require_known(micros[outside], np.iinfo(np.int64), MIN_TIMESTAMP, END_TIMESTAMP)
    return arrow_of(np.where(outside, 0, micros) + EPOCH_DAYS * DAY, to, column, outside), outside


def _require_known(values: np.ndarray, limits: np.iinfo, first: int, end: int) -> None:
    infinite = (values == limits.min) | (values == limits.max)
    if not (infinite | (values >= first) & (values < end)).all():
        raise ValueError("date or time")


def date_texts(column: TextColumn) -> pa.Array | None:
    """The dates' texts; None if any date lies outside the lake's years."""
    values, outside = dates(column)
    return values.cast(pa.string()).view(pa.binary()) if outside is None else None


def timestamp_texts(column: TextColumn, zone: str) -> pa.Array | None:
    """The timestamps' texts, each followed by ``zone``; None if any timestamp lies outside the lake's years."""
    values, outside = timestamps(column, pa.timestamp("us"))
    if outside is not None:
        return None
    return pc.binary_join_element_wise(_clock(values), zone, "").view(pa.binary())


def time_texts(column: TextColumn) -> pa.Array | None:
    """The texts of times of day; None if one is the end of the day, 24:00. Raises ValueError for a time outside a
    day."""
    micros = numbers(column, ">i8")
    if ((micros < 0) | (micros > DAY)).any():
        raise ValueError("time")
    return _clock(arrow_of(micros, pa.time64("us"), column)).view(pa.binary()) if (micros < DAY).all() else None


def _clock(values: pa.Array) -> pa.Array:
    """Arrow prints all six decimals of a second, PostgreSQL none at the end that are zero."""
    return pc.ascii_rtrim(pc.ascii_rtrim(values.cast(pa.string()), "0"), ".")
