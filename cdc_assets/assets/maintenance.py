"""``[name, "maintenance"]``: a materialisation limits the size of the lake and of Dagster's list of windows."""

from __future__ import annotations

from typing import Any

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.failures import failure_of, failures
from cdc_assets.logged_progress import logged_progress
from cdc_assets.partitions import delete_partitions, no_longer_landed
from cdc_assets.slot_observation import landed_chapters
from spark_jobs.maintain.maintain import MaintainReport, maintain


def maintenance_asset(blueprint: Blueprint) -> dg.AssetsDefinition:
    """It uses the writers' pool, so it never runs beside a sync of the same Dagster instance."""

    @dg.multi_asset(
        name=f"{blueprint.name}__maintenance",
        specs=[blueprint.specs.maintenance],
        pool=blueprint.pool,
        op_tags=blueprint.op_tags,
        retry_policy=blueprint.retry_policy,
        required_resource_keys={blueprint.spark_resource},
    )
    def maintenance(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        blueprint.note_run(context)
        return _maintain(context, blueprint)

    return maintenance


def _maintain(context: dg.AssetExecutionContext, blueprint: Blueprint) -> dg.MaterializeResult[Any]:
    progress = logged_progress(context.log.info)
    with failures(blueprint.remedies):
        report = maintain(blueprint.pipeline, blueprint.spark_of(context), progress=progress)
        deleted = _delete_old_partitions(context.instance, blueprint)
    if report.errors:
        raise failure_of(report.errors, blueprint.remedies)
    return dg.MaterializeResult(metadata={**_metadata(report), "partitions_deleted": deleted})


def _delete_old_partitions(instance: dg.DagsterInstance, blueprint: Blueprint) -> int:
    """Those whose windows retention has removed; their number."""
    # before the log is read: whatever is marked then is in the log, or was removed from it
    marked = instance.get_materialized_partitions(blueprint.change_log_key)
    chapters = landed_chapters(blueprint.pipeline)
    if chapters is None:
        return 0
    old = no_longer_landed(instance.get_dynamic_partitions(f"{blueprint.name}_lsn"), marked, chapters)
    delete_partitions(instance, blueprint.partitions, old)
    return len(old)


def _metadata(report: MaintainReport) -> dict[str, Any]:
    kept = {
        "change_log": report.change_log,
        "cuts": report.cuts,
        "messages": report.messages,
        "unrepresentable": report.unrepresentable,
    }
    metadata: dict[str, Any] = {
        "first_window": report.first_window,
        "reaches_back_to": str(report.reaches_back_to),
        "table_files": sum(table.files.after for table in report.tables if table.files),
        **({"held_by": report.held_by} if report.held_by else {}),
    }
    for name, done in kept.items():
        if done is not None:
            metadata |= {f"{name}_files": done.files_after, f"{name}_bytes": done.bytes_after}
    return metadata
