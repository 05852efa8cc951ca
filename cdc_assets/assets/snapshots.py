"""``[name, snapshot, schema, table]``: a materialisation re-creates the Delta table, at one exact LSN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from cdc_assets.asset_keys import source_key
from cdc_assets.assets.table_metadata import source_keys_of, table_metadata
from cdc_assets.blueprint import Blueprint
from cdc_assets.failures import failure_of, failures
from cdc_assets.logged_progress import logged_progress
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
        blueprint.note_run(context)
        yield from _take(context, blueprint, tables)

    return snapshots


def _take(
    context: dg.AssetExecutionContext, blueprint: Blueprint, tables: Mapping[dg.AssetKey, QualifiedName]
) -> Iterator[dg.MaterializeResult[Any]]:
    from spark_jobs.snapshot.exporter import BRIEF, Exporter
    from spark_jobs.sync import prepare, snapshot

    pipeline, spark = blueprint.pipeline, blueprint.spark_of(context)
    names = [table for key, table in tables.items() if key in context.selected_asset_keys]
    progress = logged_progress(context.log.info)
    # the run holds the pool, so it does not wait for long
    with failures(blueprint.name), Exporter(pipeline.source.dsn, BRIEF) as exporter:
        halted = {table.name: table.error for table in prepare(pipeline).stopped if table.name in names}
        names = [name for name in names if name not in halted]
        run_id = context.run.run_id
        taken = snapshot(spark, pipeline, names, exporter=exporter, run_id=run_id, progress=progress) if names else ()
    keys = source_keys_of(pipeline, names, context.log.warning)
    stopped = list(halted.values())
    for table in taken:
        if table.error is not None:
            stopped.append(table.error)
            continue
        version = None if table.state is None else table.state.version
        metadata = {
            "snapshot_lsn": str(table.lsn),
            "rows": table.rows,
            **table_metadata(spark, blueprint, table.name, keys.get(table.name), version),
        }
        yield dg.MaterializeResult(
            asset_key=blueprint.snapshot_key(table.name), metadata=metadata, data_version=dg.DataVersion(str(table.lsn))
        )
    if stopped:
        raise failure_of(stopped, blueprint.name)


def _snapshot_spec(blueprint: Blueprint, table: QualifiedName) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=blueprint.snapshot_key(table),
        description=f"Table {table} read whole at one LSN. Materialise to re-create the Delta table.",
        group_name=blueprint.name,
        kinds={"postgres", "deltalake", "spark"},
        skippable=True,
        deps=[source_key(blueprint.source_prefix, table)],
        metadata={"dagster/uri": blueprint.pipeline.lake.table(table), "dagster/storage_kind": "deltalake"},
    )
