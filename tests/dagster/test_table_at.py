"""``cdc_assets.at`` in assets of a user's own: what it finds, and what it says where it finds nothing. No server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

import cdc_assets
from cdc_assets.calendars import CUT

BERLIN = dg.DailyPartitionsDefinition("2026-11-01", timezone="Europe/Berlin")
DAY = "2026-11-03"
NO_STORE = {"endpoint": None, "region": None, "path_style": None}


def days(pipeline: str, partitions: dg.TimeWindowPartitionsDefinition = BERLIN) -> dg.AssetSpec:
    return dg.AssetSpec([pipeline, "daily"], partitions_def=partitions, metadata={CUT: True})


def complete(instance: dg.DagsterInstance, pipeline: str, day: str = DAY, lake: str = "/lake", **storage: Any) -> None:
    tables = {"public.orders": {"path": f"{lake}/{pipeline}", "version": int(day[-2:])}}
    cut = dg.MetadataValue.json({"tables": tables, "storage": NO_STORE | storage})
    event = dg.AssetMaterialization([pipeline, "daily"], partition=day, metadata={CUT: cut})
    instance.report_runless_asset_event(event)


def found(
    instance: dg.DagsterInstance,
    *deps: str,
    table: str = "public.orders",
    partitions: dg.PartitionsDefinition | None = BERLIN,
    key: str | None = DAY,
    **more: Any,
) -> cdc_assets.TableAt:
    answers: list[cdc_assets.TableAt] = []

    @dg.asset(deps=[[pipeline, "daily"] for pipeline in deps], partitions_def=partitions)
    def mine(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        answers.append(cdc_assets.at(context, table, **more))

    dg.materialize([mine, days("shop"), days("other")], selection=[mine], instance=instance, partition_key=key)
    return answers[0]


def test_the_cut_of_the_same_day(instance: dg.DagsterInstance) -> None:
    complete(instance, "shop")
    complete(instance, "shop", "2026-11-04")
    assert found(instance, "shop") == cdc_assets.TableAt("/lake/shop", 3)
    assert found(instance, "shop", key="2026-11-04") == cdc_assets.TableAt("/lake/shop", 4)


def test_an_asset_of_weeks_reads_the_end_of_the_last_day(instance: dg.DagsterInstance) -> None:
    complete(instance, "shop", "2026-11-14")
    weeks = dg.WeeklyPartitionsDefinition("2026-11-01", timezone="Europe/Berlin")
    assert found(instance, "shop", partitions=weeks, key="2026-11-08").version == 14


def test_the_settings_of_the_store_come_with_it(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    complete(instance, "shop", lake="s3://bucket", endpoint="http://127.0.0.1:9000", region="eu-central-1")
    options = found(instance, "shop").storage_options
    assert options is not None
    assert options["aws_endpoint"] == "http://127.0.0.1:9000"
    assert options["allow_http"] == "true"


def test_two_pipelines_with_such_a_table(instance: dg.DagsterInstance) -> None:
    complete(instance, "shop")
    complete(instance, "other")
    assert found(instance, "shop", "other", asset="other/daily").path == "/lake/other"
    with pytest.raises(dg.Failure, match="other/daily, shop/daily each have a table"):
        found(instance, "shop", "other")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"key": "2026-11-05"}, "shop/daily is not materialised for 2026-11-05: the day is not complete"),
        ({"table": "public.items"}, "shop/daily has no table public.items at 2026-11-03T23:00:00"),
        ({"partitions": None, "key": None}, "the run has no partition"),
        (
            {"partitions": dg.DailyPartitionsDefinition("2026-11-01", timezone="Europe/Berlin", hour_offset=6)},
            "no partition of shop/daily ends at 2026-11-04T05:00:00.*: both have to begin at one hour",
        ),
    ],
)
def test_what_is_not_there(instance: dg.DagsterInstance, asked: dict[str, Any], said: str) -> None:
    complete(instance, "shop")
    with pytest.raises(dg.Failure, match=said):
        found(instance, "shop", **asked)


def test_without_days(instance: dg.DagsterInstance) -> None:
    with pytest.raises(dg.Failure, match="the asset depends on no days or hours of a pipeline"):
        found(instance)


def test_conditions_build_what_is_late_too(instance: dg.DagsterInstance) -> None:
    """As docs/downstream.md has them."""
    condition = dg.AutomationCondition.eager()
    week = dg.AutomationCondition.in_latest_time_window(timedelta(days=7))

    @dg.multi_asset(specs=[days("shop")])
    def daily() -> None: ...

    @dg.asset(deps=[["shop", "daily"]], partitions_def=BERLIN, automation_condition=condition)
    def latest() -> None: ...

    @dg.asset(
        deps=[["shop", "daily"]],
        partitions_def=BERLIN,
        automation_condition=condition.replace("in_latest_time_window", week),
    )
    def late() -> None: ...

    defs, now = dg.Definitions(assets=[daily, latest, late]), datetime(2026, 11, 5, 5, tzinfo=UTC)
    before = dg.evaluate_automation_conditions(defs, instance, evaluation_time=now)
    assert not before.total_requested
    for day in ("2026-11-03", "2026-11-04"):
        complete(instance, "shop", day)
    after = dg.evaluate_automation_conditions(
        defs, instance, cursor=before.cursor, evaluation_time=now + timedelta(minutes=1)
    )
    assert after.get_requested_partitions(latest.key) == {"2026-11-04"}
    assert after.get_requested_partitions(late.key) == {"2026-11-03", "2026-11-04"}
