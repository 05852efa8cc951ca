"""``[name, snapshot, schema, table]``: a materialisation makes the Delta table anew, at one exact LSN."""

from __future__ import annotations

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.external_assets import source_key
from cdc_assets.failures import failures, logged_progress
from cdc_assets.table_metadata import table_metadata
from spark_jobs.qualified_name import QualifiedName


def snapshot_assets(blueprint: Blueprint) -> dg.AssetsDefinition:
    """All tables of the pipeline; the selected ones share one snapshot."""
    tables = {blueprint.snapshot_key(table): table for table in blueprint.table_specs}

    @dg.multi_asset(
        name=f"{blueprint.name}_snapshots",
        specs=[_snapshot_spec(blueprint, table) for table in tables.values()],
        can_subset=True,
        pool=blueprint.pool,
        op_tags=blueprint.run_tags,
        required_resource_keys={blueprint.spark_resource},
    )
    def snapshots(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        from spark_jobs.sync import prepare, snapshot

        spark = getattr(context.resources, blueprint.spark_resource).spark_session
        names = tuple(table for key, table in tables.items() if key in context.selected_asset_keys)
        progress = logged_progress(context.log.info)
        with failures():
            prepare(blueprint.pipeline, progress)
            taken = snapshot(spark, blueprint.pipeline, names, progress)
        for each in taken:
            yield dg.MaterializeResult(
                asset_key=blueprint.snapshot_key(each.name),
                metadata={
                    "snapshot_lsn": str(each.lsn),
                    "rows": each.rows,
                    **table_metadata(spark, blueprint, each.name),
                },
                data_version=dg.DataVersion(str(each.lsn)),
            )

    return snapshots


def _snapshot_spec(blueprint: Blueprint, table: QualifiedName) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=blueprint.snapshot_key(table),
        description=f"Table {table} read whole at one LSN. Materialise to make the Delta table anew.",
        group_name=blueprint.name,
        kinds={"postgres", "deltalake", "spark"},
        deps=[source_key(blueprint.database, table)],
        metadata={"dagster/uri": blueprint.pipeline.lake.table(table), "dagster/storage_kind": "deltalake"},
    )
