"""``[name, schema, table]``: a materialisation applies LSN windows to the Delta table.

One step for all tables of the run, on one Spark session. A table that must stop stops alone: the others are brought up
to date and marked, then the step fails and names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.checks import watermark_spec
from cdc_assets.failures import failure, failures, logged_progress
from cdc_assets.partitions import windows_of
from cdc_assets.table_metadata import window_metadata
from cdc_assets.window_events import catch_up_events
from spark_jobs.errors import CdcError
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from spark_jobs.apply import TableApplied


@dataclass(frozen=True)
class TableRun:
    """One step's work: apply ``windows``, in LSN order, to ``tables``."""

    blueprint: Blueprint
    windows: tuple[Window, ...]
    tables: Mapping[QualifiedName, dg.AssetKey]


Execute: TypeAlias = Callable[[dg.AssetExecutionContext, TableRun], Iterator[Any]]


def table_spec(blueprint: Blueprint, table: QualifiedName) -> dg.AssetSpec:
    """One followed table, before translation."""
    pipeline = blueprint.pipeline
    return dg.AssetSpec(
        key=blueprint.table_key(table),
        description=f"PostgreSQL table {table} of database {blueprint.database}, followed change by change.",
        group_name=blueprint.name,
        kinds={"postgres", "deltalake", "spark"},
        partitions_def=blueprint.partitions,
        deps=[blueprint.change_log_key, blueprint.snapshot_key(table)],
        metadata={
            "dagster/uri": pipeline.lake.table(table),
            "dagster/storage_kind": "deltalake",
            "dagster/table_name": f"{blueprint.name}.{table.nspname}.{table.relname}",
        },
    )


def table_assets(blueprint: Blueprint, execute: Execute) -> dg.AssetsDefinition:
    """All tables of the pipeline; any selection of them may be run."""

    @dg.multi_asset(
        name=f"{blueprint.name}_tables",
        specs=[spec.replace_attributes(skippable=True) for spec in blueprint.table_specs.values()],
        check_specs=[watermark_spec(spec.key) for spec in blueprint.table_specs.values()],
        can_subset=True,
        pool=blueprint.pool,
        op_tags=blueprint.run_tags,
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={blueprint.spark_resource},
    )
    def tables(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        selected = {
            table: spec.key for table, spec in blueprint.table_specs.items() if spec.key in context.selected_asset_keys
        }
        yield from execute(context, TableRun(blueprint, windows_of(context.partition_keys), selected))

    return tables


def apply_windows(context: dg.AssetExecutionContext, run: TableRun) -> Iterator[Any]:
    """Bring the run's tables to the end of its last window, each from its own watermark.

    A table without a snapshot gets one on the way. Windows at or below a watermark are only marked as done.
    """
    from spark_jobs.sync import apply, landed_markers

    blueprint, pipeline = run.blueprint, run.blueprint.pipeline
    spark = getattr(context.resources, blueprint.spark_resource).spark_session
    with failures():
        outcomes = apply(
            spark, pipeline, tuple(run.tables), upto=run.windows[-1].hi, progress=logged_progress(context.log.info)
        )
        markers = landed_markers(pipeline, since=run.windows[0].lo)
    stopped: list[CdcError] = []
    for outcome in outcomes:
        if outcome.error is not None:
            stopped.append(outcome.error)
            continue
        key = run.tables[outcome.name]
        catch_up_events(context, key, run.windows, run.windows[-1].hi)
        for window in run.windows:
            context.add_asset_metadata(window_metadata(markers, window, outcome.name), key, window.key)
        yield _materialised(spark, run, outcome)
    if stopped:
        raise _stopped(stopped)


def _materialised(spark: Any, run: TableRun, outcome: TableApplied) -> dg.MaterializeResult[Any]:
    raise NotImplementedError


def _stopped(errors: list[CdcError]) -> dg.Failure:
    if len(errors) == 1:
        return failure(errors[0])
    return dg.Failure("; ".join(str(error) for error in errors), allow_retries=False)
