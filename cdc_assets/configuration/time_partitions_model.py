"""``time_partitions:``, assets partitioned by day or hour beside those partitioned by LSN windows."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from cdc_assets.configuration.fields import Hour, StartDate, TimeZone
from cdc_assets.configuration.strict_model import StrictModel
from spark_jobs.options.time_partitions import Days, Hours, Periods

_EARLIEST = "2026-01-01"
_START = "The first partition's date. Earlier ones can never be complete; choose the day of the first snapshot."


class DailyModel(StrictModel):
    """The asset of days."""

    timezone: TimeZone = Field(
        default="UTC", description="The time zone of the days, as IANA names it.", examples=["Europe/Berlin"]
    )
    hour: Hour = Field(default=0, description="The hour at which a day begins, in that zone.", examples=[6])
    start: StartDate = Field(default=_EARLIEST, description=_START, examples=["2026-11-01"])

    @property
    def periods(self) -> Periods:
        return Days(self.timezone, self.hour)


class HourlyModel(StrictModel):
    """The asset of hours."""

    timezone: TimeZone = Field(
        default="UTC", description="The time zone that names the hours, as IANA names it.", examples=["Europe/Berlin"]
    )
    start: StartDate = Field(default=_EARLIEST, description=_START, examples=["2026-11-01"])

    @model_validator(mode="after")
    def _changes_by_hours(self) -> HourlyModel:
        zone = ZoneInfo(self.timezone)
        if len({datetime(2026, month, 1, tzinfo=zone).strftime("%z")[-2:] for month in (1, 7)}) > 1:
            raise ValueError(f"timezone: {self.timezone} changes its clocks by half an hour; write timezone: UTC")
        return self

    @property
    def periods(self) -> Periods:
        return Hours(self.timezone)


class TimePartitionsModel(StrictModel):
    """Assets whose partitions are days or hours. Each names a cut that shows what was committed before its end."""

    daily: DailyModel | None = Field(
        default=None, description="Days: the asset NAME/daily.", examples=[{"timezone": "Europe/Berlin"}]
    )
    hourly: HourlyModel | None = Field(
        default=None, description="Hours: the asset NAME/hourly.", examples=[{"timezone": "Europe/Berlin"}]
    )
    when_a_table_stops: Literal["wait", "leave_out"] = Field(
        default="wait",
        description="Whether a day waits for a table that is stopped, or is complete without it.",
    )

    @model_validator(mode="after")
    def _has_one(self) -> TimePartitionsModel:
        if not self.named:
            raise ValueError("expected daily, hourly or both; `daily: {}` is the days of UTC")
        return self

    @property
    def named(self) -> dict[Literal["daily", "hourly"], DailyModel | HourlyModel]:
        """Those that are configured, by the last part of their assets' keys."""
        return {
            **({"daily": self.daily} if self.daily is not None else {}),
            **({"hourly": self.hourly} if self.hourly is not None else {}),
        }
