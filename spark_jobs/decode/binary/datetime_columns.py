"""Turns columns of binary dates and times into Arrow, marking the values that the lake cannot hold, and into text.

The lake holds years 1 to 9999. Text for columns with values outside is left to ``datetime_text``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.decode.binary.datetime_text import (
    DAY,
    END_DAY,
    END_TIMESTAMP,
    EPOCH_DAYS,
    MIN_DAY,
    MIN_TIMESTAMP,
)
from spark_jobs.decode.binary.fixed_width import arrow_of, numbers
from spark_jobs.decode.binary.ragged import Piece, constant, pairs, quads, text_of
from spark_jobs.decode.text_column import TextColumn

_FIRST_DAY, _LAST_DAY = -719_162 - EPOCH_DAYS, 2_932_896 - EPOCH_DAYS  # 0001-01-01, 9999-12-31
_FIRST, _END = _FIRST_DAY * DAY, (_LAST_DAY + 1) * DAY
_SECOND = 1_000_000


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
    days = numbers(column, ">i4")[column.valid].astype(np.int64)
    if ((days < _FIRST_DAY) | (days > _LAST_DAY)).any():
        return None
    return text_of(_date(days), column)


def timestamp_texts(column: TextColumn, zone: str) -> pa.Array | None:
    """The timestamps' texts, each followed by ``zone``; None if any timestamp lies outside the lake's years."""
    micros = numbers(column, ">i8")[column.valid]
    if ((micros < _FIRST) | (micros >= _END)).any():
        return None
    days, rest = np.divmod(micros, DAY)
    pieces = [*_date(days), (constant(" ", len(days)), True), *_clock(rest)]
    return text_of([*pieces, (constant(zone, len(days)), True)] if zone else pieces, column)


def time_texts(column: TextColumn) -> pa.Array:
    """The texts of times of day. Raises ValueError for a time outside a day."""
    micros = numbers(column, ">i8")[column.valid]
    if ((micros < 0) | (micros > DAY)).any():
        raise ValueError("time")
    return text_of(_clock(micros), column)


def _date(days: np.ndarray) -> list[Piece]:
    """``days``: since 2000-01-01, in years 1 to 9999."""
    calendar = (days + EPOCH_DAYS).astype("datetime64[D]")
    months = calendar.astype("datetime64[M]")
    year, month = np.divmod(months.astype(np.int64) + 1970 * 12, 12)
    day = (calendar - months.astype("datetime64[D]")).astype(np.int64)
    dash = constant("-", len(days))
    return [(quads(year), True), (dash, True), (pairs(month + 1), True), (dash, True), (pairs(day + 1), True)]


def _clock(micros: np.ndarray) -> list[Piece]:
    seconds, fraction = np.divmod(micros, _SECOND)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    colon = constant(":", len(micros))
    pieces: list[Piece] = [(pairs(hour), True), (colon, True), (pairs(minute), True), (colon, True)]
    pieces.append((pairs(second), True))
    if fraction.any():
        low = fraction % 10_000
        digits = np.concatenate([pairs(fraction // 10_000), quads(low)], axis=1)
        is_shown = np.maximum.accumulate(digits[:, ::-1] != ord("0"), axis=1)[:, ::-1]
        pieces += [(constant(".", len(micros)), is_shown[:, :1]), (digits, is_shown)]
    return pieces
