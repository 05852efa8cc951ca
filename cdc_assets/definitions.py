"""Assembles the parts of one pipeline."""

from __future__ import annotations

import dagster as dg

from cdc_assets.assets.calendars import calendar_assets
from cdc_assets.assets.change_log import change_log_asset
from cdc_assets.assets.checks import slot_health_check
from cdc_assets.assets.maintenance import maintenance_asset
from cdc_assets.assets.snapshots import snapshot_assets
from cdc_assets.assets.tables import Execute, table_assets
from cdc_assets.assets.verify_checks import verify_checks
from cdc_assets.automation.jobs import (
    maintenance_job,
    maintenance_schedule,
    recover_job,
    snapshot_job,
    sync_job,
    sync_schedule,
    verify_job,
    verify_schedule,
)
from cdc_assets.automation.slot_lag_sensor import slot_lag_sensor
from cdc_assets.blueprint import Blueprint
from cdc_assets.shared_sources import DeclaredElsewhere


def build_definitions(
    blueprint: Blueprint, execute: Execute, elsewhere: DeclaredElsewhere, *, bring_resource: bool
) -> dg.Definitions:
    """``elsewhere``: the source tables whose assets other pipelines declare.
    ``bring_resource``: the Spark resource is ours; otherwise the project defines it under the configured key."""
    sync, snapshot = sync_job(blueprint), snapshot_job(blueprint)
    maintenance, verify = maintenance_job(blueprint), verify_job(blueprint)
    by = blueprint.automation
    resources = {}
    if bring_resource:
        from cdc_assets.spark_resource import delta_spark_resource

        resources[blueprint.spark_resource] = delta_spark_resource(blueprint.pipeline, blueprint.sync_job)
    return dg.Definitions(
        assets=[
            *(spec for spec in blueprint.specs.sources.values() if spec.key not in elsewhere),
            change_log_asset(blueprint),
            snapshot_assets(blueprint),
            table_assets(blueprint, execute),
            maintenance_asset(blueprint),
            *calendar_assets(blueprint),
        ],
        asset_checks=[slot_health_check(blueprint), verify_checks(blueprint)],
        jobs=[sync, snapshot, recover_job(blueprint), maintenance, verify],
        sensors=[] if by.sensor is None else [slot_lag_sensor(blueprint, by.sensor, sync, snapshot)],
        schedules=[]
        if by.sensor is None and by.schedule is None
        else [
            sync_schedule(blueprint, sync),
            maintenance_schedule(blueprint, maintenance),
            verify_schedule(blueprint, verify),
        ],
        resources=resources,
    )
