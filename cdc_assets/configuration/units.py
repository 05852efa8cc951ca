"""Sizes and durations, as configuration file and command line write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

SIZES: Mapping[str, int] = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
DURATIONS: Mapping[str, timedelta] = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_LONGEST = timedelta(days=36500)
_AMOUNT = re.compile(r"(\d{1,16}(?:\.\d{1,9})?)\s*([A-Za-z]*)")


def read_size(value: object) -> int:
    """Bytes; a plain number is one of bytes. Raises ValueError."""
    number, unit = _amount(value, "a size", SIZES)
    return int(number * SIZES[unit or "B"])


def read_duration(value: object, *, needs_unit: bool = False) -> timedelta:
    """A plain number is one of seconds, where no unit is needed. Raises ValueError."""
    number, unit = _amount(value, "a duration", DURATIONS, needs_unit=needs_unit)
    each = DURATIONS[unit or "s"]
    if number > _LONGEST / each:
        raise ValueError(f"expected a duration of at most {duration_text(_LONGEST)}")
    return float(number) * each


def _amount(value: object, what: str, units: Mapping[str, object], *, needs_unit: bool = False) -> tuple[Decimal, str]:
    match = None if isinstance(value, bool) else _AMOUNT.fullmatch(str(value).strip())
    if match is None or (match[2] not in units and (match[2] or needs_unit)):
        raise ValueError(f"expected {what} (units {', '.join(units)})")
    return Decimal(match[1]), match[2]


def size_text(size: int) -> str:
    """As the configuration file writes it, in the largest unit that leaves a whole number."""
    return next(
        (f"{size // unit}{name}" for name, unit in reversed(tuple(SIZES.items())) if size and not size % unit), "0B"
    )


def duration_text(duration: timedelta) -> str:
    """The same, in days at most."""
    units = {name: unit for name, unit in reversed(tuple(DURATIONS.items())) if name != "w"}
    return next((f"{duration // unit}{name}" for name, unit in units.items() if duration and not duration % unit), "0s")


def seconds_text(seconds: int) -> str:
    return duration_text(timedelta(seconds=seconds))
