"""The days for which assets are built: those of ``time_partitions`` in ``defs/shop/defs.yaml``."""

import os
from datetime import timedelta
from pathlib import Path

import dagster as dg

DAYS = dg.DailyPartitionsDefinition(os.environ["SHOP_FIRST_DAY"], timezone="UTC")
DAILY = dg.AssetKey(["shop", "daily"])
# a day is built when it is complete; for two weeks also one that was late
WHEN_COMPLETE = dg.AutomationCondition.eager().replace(
    "in_latest_time_window", dg.AutomationCondition.in_latest_time_window(timedelta(days=14))
)
# else Dagster's UI says so; whichever day is built counts, so a backfill does too
BY_THREE = dg.FreshnessPolicy.cron(deadline_cron="0 3 * * *", lower_bound_delta=timedelta(hours=3), timezone="UTC")


def file_of(asset: str, day: str) -> Path:
    """One file a day, replaced when the day is built again."""
    file = Path(os.environ["SHOP_LAKE"], "gold", asset, f"{day}.parquet")
    file.parent.mkdir(parents=True, exist_ok=True)
    return file
