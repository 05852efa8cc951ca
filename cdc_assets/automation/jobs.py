"""The jobs of one pipeline, with their schedules: ``{name}_sync``, ``{name}_snapshot``, ``{name}_maintenance``,
``{name}_verify`` and ``{name}_recover``.

Each runs in one process: capture, snapshot and apply share one Spark session. A schedule is stopped until it is turned
on in the UI, unless the configuration says ``default_status: running``.
"""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg

from cdc_assets.assets.calendars import completed
from cdc_assets.assets.snapshots import snapshot_event
from cdc_assets.assets.window_events import remove_lost_partitions
from cdc_assets.automation.run_planning import ensure_pool_limit, plan_run, run_request
from cdc_assets.blueprint import Blueprint
from cdc_assets.failures import failure_of, failures
from cdc_assets.logged_progress import logged_progress
from cdc_assets.partitions import add_partitions
from cdc_assets.slot_observation import landed_chapters, observe

_EVERY_FIVE_MINUTES = "*/5 * * * *"
_EVERY_NIGHT = "17 3 * * *"
_SUNDAYS_AT_THREE = "0 3 * * 0"


def sync_job(blueprint: Blueprint) -> dg.UnresolvedAssetJobDefinition:
    assets = dg.AssetSelection.assets(
        blueprint.change_log_key,
        *(spec.key for spec in blueprint.table_specs.values()),
        *([blueprint.messages_key] if blueprint.messages_key else []),
    )
    return _job(
        blueprint.sync_job,
        assets - _verify_selection(blueprint),
        "Capture a range of LSN windows and apply them to every table.",
        blueprint.run_tags,
    )


def snapshot_job(blueprint: Blueprint) -> dg.UnresolvedAssetJobDefinition:
    return _job(
        blueprint.snapshot_job,
        dg.AssetSelection.assets(*(blueprint.snapshot_key(table) for table in blueprint.table_specs)),
        "Create publication and slot if missing, and re-create every table from a snapshot at one LSN.",
        blueprint.run_tags,
    )


def maintenance_job(blueprint: Blueprint) -> dg.UnresolvedAssetJobDefinition:
    """Retention, compaction and clean-up. It waits for the pool while a sync of this pipeline runs."""
    return _job(
        blueprint.maintenance_job,
        dg.AssetSelection.assets(blueprint.specs.maintenance.key),
        "Remove what is older than retention, compact files, clean up Delta's logs, vacuum.",
        blueprint.run_tags,
    )


def verify_job(blueprint: Blueprint) -> dg.UnresolvedAssetJobDefinition:
    """Compare every table with the source. It has no pipeline tag, since the sensor judges by how tagged runs end."""
    return _job(
        blueprint.verify_job,
        _verify_selection(blueprint),
        "Compare every table with the source, row by row, at one LSN.",
        tags=None,
    )


def maintenance_schedule(blueprint: Blueprint, maintenance: dg.UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=blueprint.maintenance_job,
        job=maintenance,
        cron_schedule=_EVERY_NIGHT,
        default_status=_status(running=blueprint.automation.runs),
        description="Remove old data and compact small files, once a day.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        ensure_pool_limit(context, blueprint)
        return dg.RunRequest()

    return schedule


def verify_schedule(blueprint: Blueprint, verify: dg.UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=blueprint.verify_job,
        job=verify,
        cron_schedule=_SUNDAYS_AT_THREE,
        description="Compare every table with the source, row by row.",
    )


def recover_job(blueprint: Blueprint) -> dg.JobDefinition:
    """Does what ``postgres-cdc recover`` does, for those who have no shell. Never runs on its own: a person must decide
    whether to recover, or to correct the configuration."""

    @dg.op(
        name=f"{blueprint.recover_job}_op",
        description="Create a slot, begin a new chapter of the change log, take new snapshots, each only if needed.",
        pool=blueprint.pool,
        tags=blueprint.op.tags,
        required_resource_keys={blueprint.spark_resource},
        out=dg.Out(dg.Nothing),
    )
    def recover_pipeline(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        _recover(context, blueprint)

    @dg.job(
        name=blueprint.recover_job,
        description="Recover from a slot that was lost, or no longer continues the change log.",
        tags=blueprint.run_tags,
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        recover_pipeline()

    return job


def _recover(context: dg.OpExecutionContext, blueprint: Blueprint) -> None:
    from spark_jobs.recover import recover

    pipeline, progress = blueprint.pipeline, logged_progress(context.log.info)
    with failures(blueprint.remedies):
        report = recover(pipeline, blueprint.spark_of(context), run_id=context.run.run_id, progress=progress)
        chapters = landed_chapters(pipeline)
    assert chapters is not None  # without a change log recover raises
    remove_lost_partitions(context, blueprint, chapters)
    if report.nothing_to_do:
        context.log.info("there is nothing to recover")
    if report.chapter is not None and report.chapter.broke is not None:
        context.log.warning("%s; a new chapter begins at %s", report.chapter.broke.what, report.chapter.window.lo)
    for changed in report.modes:
        if changed.error is None:
            context.log.info("mode of %s: %s", changed.name, changed.what)
    for table in report.waiting:
        context.log.warning("%s", table)
    for snapshot in report.snapshots:
        if snapshot.error is None:
            context.log_event(snapshot_event(blueprint, snapshot))
    if report.errors:
        raise failure_of(report.errors, blueprint.remedies)


def _job(
    name: str, selection: dg.AssetSelection, description: str, tags: Mapping[str, str] | None
) -> dg.UnresolvedAssetJobDefinition:
    return dg.define_asset_job(
        name, selection=selection, description=description, tags=tags, executor_def=dg.in_process_executor
    )


def _verify_selection(blueprint: Blueprint) -> dg.AssetSelection:
    return dg.AssetSelection.checks(*(blueprint.verify_check_key(table) for table in blueprint.verified_tables))


def _status(*, running: bool) -> dg.DefaultScheduleStatus:
    return dg.DefaultScheduleStatus.RUNNING if running else dg.DefaultScheduleStatus.STOPPED


def sync_schedule(blueprint: Blueprint, sync: dg.UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """For users who prefer a schedule to the sensor. Either is enough, so where there is a sensor, this one is off.

    Dagster's own schedule of a partitioned job needs existing keys; this one adds the missing windows first.
    """
    automation = blueprint.automation

    @dg.schedule(
        name=blueprint.sync_job,
        job=sync,
        cron_schedule=automation.schedule or _EVERY_FIVE_MINUTES,
        default_status=_status(running=automation.runs and automation.schedule is not None),
        description="Plan windows up to the WAL flushed now, and capture and apply them in one run.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        ensure_pool_limit(context, blueprint)
        with failures(blueprint.remedies):
            observation = observe(blueprint.pipeline)
            if observation is None:
                return dg.SkipReason(f"there is no slot yet: run {blueprint.snapshot_job} once")
            plan = plan_run(context.instance, blueprint, observation)
            for event in completed(context.instance, blueprint, observation.settled):
                context.instance.report_runless_asset_event(event)
        add_partitions(context.instance, blueprint.partitions, plan.new_keys)
        for table in plan.stopped.tables:
            context.log.warning(str(table))
        return run_request(blueprint, plan) or dg.SkipReason(plan.reason)

    return schedule
