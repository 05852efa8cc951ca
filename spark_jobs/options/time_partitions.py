"""When days and hours end, where a pipeline has time partitions: the same instants as Dagster's own partitions have.

Dagster's rules for the change of the clocks, which ``tests/options/test_time_partitions.py`` compares: in place of a
local time that is skipped comes the first one after the gap. Of a local time that comes twice it is the second, and
around midnight the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import time as local_time
from typing import Protocol
from zoneinfo import ZoneInfo

_DAY, _HOUR, _MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
# the hours of which Dagster takes the second
_SECOND = (1, 2, 3)


class Periods(Protocol):
    """Days, or hours."""

    def ends(self, after: datetime, until: datetime) -> Iterable[datetime]:
        """The ends in (``after``, ``until``], in order, in UTC."""
        ...


@dataclass(frozen=True)
class Days:
    """Each begins at ``hour`` o'clock in ``timezone``, an IANA name."""

    timezone: str = "UTC"
    hour: int = 0

    def ends(self, after: datetime, until: datetime) -> Iterator[datetime]:
        zone, last = ZoneInfo(self.timezone), after
        # a day's date may be skipped, where a country has moved over the date line
        date = after.astimezone(zone).date() - _DAY
        while date <= until.astimezone(zone).date():
            end = _instant(datetime.combine(date, local_time(self.hour)), zone)
            if last < end <= until:
                yield end
                last = end
            date += _DAY


@dataclass(frozen=True)
class Hours:
    """Each begins at a full hour in ``timezone``, whose clocks must change by whole hours."""

    timezone: str = "UTC"

    def ends(self, after: datetime, until: datetime) -> Iterator[datetime]:
        local = after.astimezone(ZoneInfo(self.timezone))
        begun = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        end = after.astimezone(UTC) - begun + _HOUR
        while end <= until:
            yield end
            end += _HOUR


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    while True:
        instant = local.replace(tzinfo=zone, fold=int(local.hour in _SECOND)).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == local:
            return instant
        local += _MINUTE


def ends_of(periods: Iterable[Periods], after: datetime, until: datetime) -> tuple[datetime, ...]:
    """The ends of all ``periods`` in (``after``, ``until``], in order, each once."""
    return tuple(sorted({end for each in periods for end in each.ends(after, until)}))
