"""Days and hours as Dagster partitions, and the instants at which they end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import dagster as dg

from cdc_assets.configuration.time_partitions_model import DailyModel, HourlyModel, TimePartitionsModel
from spark_jobs.options.time_partitions import Periods

CalendarName: TypeAlias = Literal["daily", "hourly"]
# the metadata of an asset of days or hours, and of its partitions: the cut
CUT = "postgres_cdc/cut"
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Calendar:
    """``partitions`` and ``periods`` have the same ends."""

    partitions: dg.TimeWindowPartitionsDefinition
    periods: Periods

    def end_of(self, key: str) -> datetime:
        return self.partitions.time_window_for_partition_key(key).end.astimezone(UTC)

    def key_that_ends(self, at: datetime) -> str | None:
        """None if no partition ends there."""
        return key_that_ends(self.partitions, at)


def key_that_ends(partitions: dg.TimeWindowPartitionsDefinition, at: datetime) -> str | None:
    if at - _MICROSECOND < partitions.start.astimezone(UTC):
        return None
    key = partitions.get_partition_key_for_timestamp((at - _MICROSECOND).timestamp())
    return key if partitions.time_window_for_partition_key(key).end == at else None


def calendars_of(model: TimePartitionsModel | None) -> dict[CalendarName, Calendar]:
    return (
        {} if model is None else {name: Calendar(_partitions(each), each.periods) for name, each in model.named.items()}
    )


def _partitions(model: DailyModel | HourlyModel) -> dg.TimeWindowPartitionsDefinition:
    if isinstance(model, DailyModel):
        return dg.DailyPartitionsDefinition(start_date=model.start, timezone=model.timezone, hour_offset=model.hour)
    return dg.HourlyPartitionsDefinition(start_date=f"{model.start}-00:00", timezone=model.timezone)
