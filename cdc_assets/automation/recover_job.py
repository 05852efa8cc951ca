"""``{name}_recover``: does what ``postgres-cdc recover`` does, for users with Dagster's UI but no shell."""

from __future__ import annotations

import dagster as dg

from cdc_assets.assets.lost_partitions import remove_lost_partitions
from cdc_assets.assets.snapshots import snapshot_event
from cdc_assets.blueprint import Blueprint
from cdc_assets.failures import failure_of, failures
from cdc_assets.logged_progress import logged_progress
from cdc_assets.slot_observation import landed_chapters


def recover_job(blueprint: Blueprint) -> dg.JobDefinition:
    """Never runs on its own: a person must decide whether to recover, or to correct the configuration."""
    pipeline = blueprint.pipeline

    @dg.op(
        name=f"{blueprint.recover_job}_op",
        description="Create a slot, begin a new chapter of the change log, take new snapshots, each only if needed.",
        pool=blueprint.pool,
        tags=blueprint.op.tags,
        required_resource_keys={blueprint.spark_resource},
        out=dg.Out(dg.Nothing),
    )
    def recover_pipeline(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        from spark_jobs.recover import recover

        progress = logged_progress(context.log.info)
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
        for taken in report.snapshots:
            if taken.error is None:
                context.log_event(snapshot_event(blueprint, taken))
        if report.errors:
            raise failure_of(report.errors, blueprint.remedies)

    @dg.job(
        name=blueprint.recover_job,
        description="Recover from a slot that was lost, or no longer continues the change log.",
        tags=blueprint.run_tags,
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        recover_pipeline()

    return job
