"""Renders binary dates and times as text: ``DateStyle = ISO``, ``TimeZone = UTC``, ``IntervalStyle = postgres``.

All functions raise ValueError for values outside PostgreSQL's ranges. Mirrors ``src/backend/utils/adt/datetime.c``:
``EncodeDateOnly``, ``EncodeDateTime``, ``EncodeTimeOnly``, ``EncodeInterval``.
"""

from __future__ import annotations

from spark_jobs.logicalrep.cursor import Cursor

EPOCH_DAYS = 10_957  # 2000-01-01, PostgreSQL's epoch, in days since 1970-01-01
DAY = 86_400_000_000  # microseconds
MIN_DAY, END_DAY = -2_451_545, 2_145_031_949  # 4714-11-24 BC; 5874898-01-01
MIN_TIMESTAMP, END_TIMESTAMP = -211_813_488_000_000_000, 9_223_371_331_200_000_000  # 4714-11-24 BC; 294277-01-01
_DAY_INFINITIES = {-(1 << 31): "-infinity", (1 << 31) - 1: "infinity"}
_INFINITIES = {-(1 << 63): "-infinity", (1 << 63) - 1: "infinity"}
_INFINITE_INTERVALS = {  # since PostgreSQL 17: every field at its limit
    (-(1 << 63), -(1 << 31), -(1 << 31)): "-infinity",
    ((1 << 63) - 1, (1 << 31) - 1, (1 << 31) - 1): "infinity",
}
_MAX_ZONE = 16 * 3600


def date_text(cursor: Cursor) -> str:
    day = cursor.int32("date")
    if day in _DAY_INFINITIES:
        return _DAY_INFINITIES[day]
    if not MIN_DAY <= day < END_DAY:
        raise ValueError("date")
    date, era = _date(day)
    return date + era


def timestamp_text(cursor: Cursor) -> str:
    return _timestamp(cursor.int64("timestamp"), "")


def timestamptz_text(cursor: Cursor) -> str:
    return _timestamp(cursor.int64("timestamptz"), "+00")


def _timestamp(microseconds: int, zone: str) -> str:
    if microseconds in _INFINITIES:
        return _INFINITIES[microseconds]
    if not MIN_TIMESTAMP <= microseconds < END_TIMESTAMP:
        raise ValueError("timestamp")
    day, rest = divmod(microseconds, DAY)
    date, era = _date(day)
    return f"{date} {_clock(rest)}{zone}{era}"


def time_text(cursor: Cursor) -> str:
    return _clock(_time_of_day(cursor))


def timetz_text(cursor: Cursor) -> str:
    clock = _clock(_time_of_day(cursor))
    west = cursor.int32("zone")
    if abs(west) >= _MAX_ZONE:
        raise ValueError("zone")
    minutes, second = divmod(abs(west), 60)
    hour, minute = divmod(minutes, 60)
    zone = f"{'+' if west <= 0 else '-'}{hour:02}"
    if minute or second:
        zone += f":{minute:02}"
    return f"{clock}{zone}:{second:02}" if second else clock + zone


def interval_text(cursor: Cursor) -> str:
    microseconds, days, months = cursor.int64("time"), cursor.int32("day"), cursor.int32("month")
    infinite = _INFINITE_INTERVALS.get((microseconds, days, months))
    if infinite:
        return infinite
    sign = -1 if months < 0 else 1
    years, month = divmod(abs(months), 12)
    parts: list[str] = []
    before = False  # whether the part before is negative: a positive part then gets a plus sign
    for value, unit in ((years * sign, "year"), (month * sign, "mon"), (days, "day")):
        if value:
            plus = "+" if before and value > 0 else ""
            parts.append(f"{plus}{value} {unit}{'' if value == 1 else 's'}")
            before = value < 0
    if microseconds or not parts:
        plus = "-" if microseconds < 0 else "+" if before else ""
        parts.append(plus + _clock(abs(microseconds)))
    return " ".join(parts)


def _time_of_day(cursor: Cursor) -> int:
    microseconds = cursor.int64("time")
    if not 0 <= microseconds <= DAY:
        raise ValueError("time")
    return microseconds


def _clock(microseconds: int) -> str:
    seconds, fraction = divmod(microseconds, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02}:{minute:02}:{second:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def _date(day: int) -> tuple[str, str]:
    """The date in the proleptic Gregorian calendar, and the suffix `` BC`` or nothing. ``day``: since 2000-01-01.

    Howard Hinnant's ``civil_from_days``: the calendar repeats every 400 years, and a year that starts in March ends
    with its leap day.
    """
    era, of_era = divmod(day + EPOCH_DAYS + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = era * 400 + year_of_era + (month <= 2)
    suffix = ""
    if year <= 0:
        year, suffix = 1 - year, " BC"
    return f"{year:04}-{month:02}-{of_year - (153 * shifted + 2) // 5 + 1:02}", suffix
