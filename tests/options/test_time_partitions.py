"""Days and hours end when Dagster's partitions do, also where the clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from spark_jobs.options.time_partitions import Days, Hours, ends_of

END = datetime(2027, 1, 3, tzinfo=UTC)
# Havana and Beirut change the clocks at midnight, Lord Howe by half an hour
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/Havana", "Asia/Beirut", "Australia/Lord_Howe")


def ends_in_dagster(definition: dg.TimeWindowPartitionsDefinition) -> list[datetime]:
    windows = map(definition.time_window_for_partition_key, definition.get_partition_keys(current_time=END))
    return sorted({window.end.astimezone(UTC) for window in windows})


@pytest.mark.parametrize("hour", [0, 1, 2, 3, 23])
@pytest.mark.parametrize("zone", ZONES)
def test_days(zone: str, hour: int) -> None:
    definition = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone=zone, hour_offset=hour)
    ends = ends_in_dagster(definition)
    assert len(ends) > 360
    assert list(Days(zone, hour).ends(ends[0] - timedelta(microseconds=1), ends[-1])) == ends


@pytest.mark.parametrize("zone", [zone for zone in ZONES if zone != "Australia/Lord_Howe"] + ["Asia/Kathmandu"])
def test_hours(zone: str) -> None:
    definition = dg.HourlyPartitionsDefinition(start_date="2026-03-01-00:00", timezone=zone)
    ends = ends_in_dagster(definition)
    assert len(ends) > 7000
    assert list(Hours(zone).ends(ends[0] - timedelta(microseconds=1), ends[-1])) == ends


def test_a_date_that_is_skipped_ends_with_the_one_before() -> None:
    """Samoa had no 30 December 2011."""
    definition = dg.DailyPartitionsDefinition(start_date="2011-12-26", timezone="Pacific/Apia")
    keys = definition.get_partition_keys(current_time=datetime(2012, 1, 5, tzinfo=UTC))
    ends = sorted({definition.time_window_for_partition_key(key).end.astimezone(UTC) for key in keys})
    assert list(Days("Pacific/Apia").ends(ends[0] - timedelta(microseconds=1), ends[-1])) == ends


def test_an_end_belongs_to_what_comes_before_it() -> None:
    midnight = datetime(2026, 11, 27, tzinfo=UTC)
    assert list(Days().ends(midnight - timedelta(microseconds=1), midnight)) == [midnight]
    assert list(Days().ends(midnight, midnight + timedelta(hours=23))) == []
    assert ends_of((Days(), Hours()), midnight - timedelta(hours=2), midnight) == (
        midnight - timedelta(hours=1),
        midnight,
    )
