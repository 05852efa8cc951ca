"""The jobs and schedules of one pipeline: ``{name}_sync`` and ``{name}_snapshot``.

Both run in one process: capture, snapshot and apply share one Spark session. Everything is stopped until it is turned
on in the UI.
"""

from __future__ import annotations

import dagster as dg

from cdc_assets.automation.run_planning import plan_run, range_tags
from cdc_assets.automation.run_pool import ensure_pool_limit
from cdc_assets.blueprint import Blueprint
from cdc_assets.failures import failures
from cdc_assets.partitions import add_partitions
from cdc_assets.slot_observation import observe

_EVERY_FIVE_MINUTES = "*/5 * * * *"


def sync_job(blueprint: Blueprint) -> dg.UnresolvedAssetJobDefinition:
    """Capture a range of windows and apply it to every table."""
    return dg.define_asset_job(
        blueprint.sync_job,
        selection=dg.AssetSelection.assets(
            blueprint.change_log_key,
            *(spec.key for spec in blueprint.table_specs.values()),
            *([blueprint.messages_key] if blueprint.messages_key else []),
        ),
        description="Capture a range of LSN windows and apply them to every table.",
        tags=blueprint.run_tags,
        executor_def=dg.in_process_executor,
    )


def snapshot_job(blueprint: Blueprint) -> dg.UnresolvedAssetJobDefinition:
    """Make every table anew from a snapshot at one LSN."""
    return dg.define_asset_job(
        blueprint.snapshot_job,
        selection=dg.AssetSelection.assets(*(blueprint.snapshot_key(table) for table in blueprint.table_specs)),
        description="Make publication and slot where missing, and every table anew from a snapshot at one LSN.",
        tags=blueprint.run_tags,
        executor_def=dg.in_process_executor,
    )


def sync_schedule(blueprint: Blueprint, sync: dg.UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Every five minutes, for those who want runs by the clock instead of the sensor. Either is enough.

    A partitioned job's own schedule wants keys that exist; this one adds the windows that are missing first.
    """

    @dg.schedule(
        name=blueprint.sync_job,
        job=sync,
        cron_schedule=_EVERY_FIVE_MINUTES,
        description="Plan windows up to the WAL flushed now, and capture and apply them in one run.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        ensure_pool_limit(context, blueprint)
        with failures():
            observation = observe(blueprint.pipeline)
            if observation is None:
                return dg.SkipReason(f"there is no slot yet: run {blueprint.snapshot_job} once")
            plan = plan_run(context.instance, blueprint, observation)
        add_partitions(context.instance, blueprint.partitions, plan.new_keys)
        if plan.request is None:
            return dg.SkipReason(plan.reason)
        return dg.RunRequest(tags=range_tags(plan.request))

    return schedule
