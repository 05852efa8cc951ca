"""``[name, snapshot, schema, table]``: a materialisation re-creates the Delta table, at one exact LSN.

Of one snapshot that is materialised by itself, since then a person asks for it. In any other run ("Materialize all",
``{name}_snapshot``) only for tables that have no usable snapshot, unless the step's configuration says ``force``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets.assets.table_metadata import source_tables, table_metadata
from cdc_assets.assets.turns import in_turn
from cdc_assets.blueprint import Blueprint
from cdc_assets.failures import failure_of, failures
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from spark_jobs.snapshot.snapshot_tables import TableSnapshot


_CONFIGURATION = {
    "force": dg.Field(
        bool,
        is_required=False,
        description="Whether tables that have a usable snapshot are read again. Default: only if one snapshot is"
        " materialised, and nothing else.",
    )
}


def snapshot_assets(blueprint: Blueprint) -> dg.AssetsDefinition:
    """All tables of the pipeline; the selected ones share one snapshot."""
    tables = {blueprint.snapshot_key(table): table for table in blueprint.table_specs}

    @dg.multi_asset(
        name=f"{blueprint.name}_snapshots",
        specs=[*blueprint.specs.snapshots.values()],
        can_subset=True,
        pool=blueprint.pool,
        op_tags=blueprint.op_tags,
        retry_policy=blueprint.retry_policy,
        config_schema=_CONFIGURATION,
        required_resource_keys={blueprint.spark_resource},
    )
    def snapshots(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        blueprint.note_run(context)
        yield from in_turn(context, _take(context, blueprint, tables))

    return snapshots


def _take(
    context: dg.AssetExecutionContext, blueprint: Blueprint, tables: Mapping[dg.AssetKey, QualifiedName]
) -> Iterator[dg.MaterializeResult[Any]]:
    from spark_jobs.prepare import prepare
    from spark_jobs.snapshot.exporter import IN_FULL, Exporter
    from spark_jobs.snapshot.snapshot import snapshot

    pipeline = blueprint.pipeline
    names = [table for key, table in tables.items() if key in context.selected_asset_keys]
    # the run holds the pool, so it does not wait for long
    with failures(blueprint.remedies), Exporter(pipeline.source.dsn, IN_FULL) as exporter:
        prepared = prepare(pipeline)
        halted = {table.name: table.error for table in prepared.stopped if table.name in names}
        kept = {}
        forced = _is_forced(context, blueprint)
        if not forced:
            known = prepared.ledger.only(names)
            halted |= known.errors
            kept = {name: state for name, state in known.states.items() if name not in prepared.missing}
        names = [name for name in names if name not in halted and name not in kept]
        snapshots = snapshot(blueprint.run_of(context), names, exporter=exporter, asked=forced) if names else ()
    for name, state in kept.items():
        context.log.info("the snapshot of %s at %s is kept: it is usable", name, state.snapshot_lsn)
        # an event nevertheless: without it the tables that depend on this would be skipped
        yield dg.MaterializeResult(
            asset_key=blueprint.snapshot_key(name),
            metadata={"snapshot_lsn": str(state.snapshot_lsn), "kept": True},
            data_version=dg.DataVersion(str(state.snapshot_lsn)),
        )
    in_source = source_tables(pipeline, names, context.log.warning)
    stopped = list(halted.values())
    for table in snapshots:
        if table.error is not None:
            stopped.append(table.error)
            continue
        version = None if table.state is None else table.state.version
        metadata = {
            **_snapshot_metadata(table),
            **table_metadata(blueprint.spark_of(context), blueprint, table.name, in_source.get(table.name), version),
        }
        yield dg.MaterializeResult(
            asset_key=blueprint.snapshot_key(table.name), metadata=metadata, data_version=dg.DataVersion(str(table.lsn))
        )
    if stopped:
        raise failure_of(stopped, blueprint.remedies)


def snapshot_event(blueprint: Blueprint, table: TableSnapshot) -> dg.AssetMaterialization:
    """The event of a snapshot that another step has taken."""
    return dg.AssetMaterialization(
        blueprint.snapshot_key(table.name),
        metadata=_snapshot_metadata(table),
        tags={"dagster/data_version": str(table.lsn)},
    )


def _snapshot_metadata(table: TableSnapshot) -> Mapping[str, Any]:
    reason = {"snapshot_reason": table.reason} if table.reason else {}
    lost = {"columns_lost": list(table.lost)} if table.lost else {}
    return {"snapshot_lsn": str(table.lsn), "rows": table.rows, **reason, **lost}


def _is_forced(context: dg.AssetExecutionContext, blueprint: Blueprint) -> bool:
    """What the configuration says; by default, whether this run is for one snapshot and for nothing else."""
    force: bool | None = context.op_execution_context.op_config.get("force")
    if force is not None:
        return force
    return context.run.job_name != blueprint.snapshot_job and len(context.job_def.asset_layer.selected_asset_keys) == 1
